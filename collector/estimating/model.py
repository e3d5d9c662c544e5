"""How much longer work on processors takes while others want them: processor sharing among threads that come and go.

A thread computes, then waits for something else, and computes again. When more of them can run than there are cores,
each gets an equal part. With rates that depend only on how many can run, such a network has a product-form solution
that does not depend on how long single bursts are, only on their mean share (Baskett, Chandy, Muntz and Palacios,
"Open, closed, and mixed networks of queues", 1975), so a job needs no more than its share of processor time.

v(R) = min(1, P / R) / (1 + slowdown · (min(R, P) − 1)⁺ / (P − 1)) is the speed of each of R threads on P cores.
P(j) ∝ c_j · Π_{m ≤ j} 1 / v(m) is how likely j of the others can run, c_j the coefficients of Π (1 − ρ + ρ x).
E[1 / v(j + 1)] over that is how much longer the processor part of a job takes (the arrival theorem of Sevcik and
Mitrani, and of Lavenberg and Reiser, 1980 to 1981): it sees the others as they would be without it.

Not counted: priorities, affinities of single threads, the length of a time slice, and that two hardware threads of one
core give less than two cores.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

BATCH_SIZE = 32
"""Where nothing says how many samples a batch has."""
MOST_OTHERS = 64
"""So many threads of other programs are counted at most."""


@dataclass(frozen=True)
class Processors:
    """The cores of a loop. Work on all of them at once is slower by `slowdown` than on one alone (memory, clock, caches)."""

    cores: float
    slowdown: float = 0.0

    def find_speed(self, runnable: float) -> float:
        """Return v(R), how fast each of so many threads goes on; 1 is that of one alone."""
        if runnable <= 0:
            return 1.0
        busy = max(0.0, min(runnable, self.cores) - 1.0) / max(self.cores - 1.0, 1.0)
        return min(1.0, self.cores / runnable) / (1.0 + self.slowdown * busy)


@dataclass(frozen=True)
class Customer:
    """Threads that can run together for a share of their time, if nothing holds them up."""

    share: float
    threads: float = 1.0


def list_others(others: float) -> tuple[Customer, ...]:
    """Return the programs that ask for so many cores: all of one core each, but for the last."""
    if math.isnan(others) or others <= 0:
        return ()
    others = min(others, float(MOST_OTHERS))
    whole = int(others)
    rest = (Customer(others - whole),) if others > whole else ()
    return (*(Customer(1.0) for _ in range(whole)), *rest)


def find_stretch(processors: Processors, others: Sequence[Customer], threads: float = 1.0) -> float:
    """Return how many times longer the processor part of a job of so many threads takes beside these others than alone."""
    return weigh_stretch(processors, mix(others), threads)


def mix(customers: Iterable[Customer], onto: Sequence[float] = (1.0,)) -> tuple[float, ...]:
    """Return `onto` times Π (1 − ρ + ρ x^k) as its coefficients.

    A number of threads that is not whole lies between its neighbours.
    """
    coefficients = list(onto)
    for customer in customers:
        share = min(max(customer.share, 0.0), 1.0)
        low = max(1, int(customer.threads))
        part = max(customer.threads - low, 0.0)
        found = [value * (1.0 - share) for value in coefficients] + [0.0] * (low + (part > 0.0))
        for place, value in enumerate(coefficients):
            found[place + low] += value * share * (1.0 - part)
            if part:
                found[place + low + 1] += value * share * part
        coefficients = found
    return tuple(coefficients)


def weigh_stretch(processors: Processors, coefficients: Sequence[float], threads: float = 1.0) -> float:
    """Return the same for others whose product was made by `mix`."""
    weight, whole, slower = 1.0, 0.0, 0.0
    for number, coefficient in enumerate(coefficients):
        weight /= processors.find_speed(number)
        likely = coefficient * weight
        whole += likely
        slower += likely / processors.find_speed(number + threads)
    return slower / whole * processors.find_speed(threads)


def average_stretch(processors: Processors, seen: Iterable[Customer]) -> float:
    """Return the stretch beside threads that were seen able to run, or running, for these shares of the time."""
    return sum(likely / processors.find_speed(number + 1) for number, likely in enumerate(mix(seen)))


@dataclass(frozen=True)
class Job:
    """Work of `wall_ns` when nothing else runs, which keeps `cores` processors busy on average (0 for pure waiting)."""

    wall_ns: float
    cores: float

    @property
    def share(self) -> float:
        """The part of `wall_ns` that needs a processor."""
        return min(max(self.cores, 0.0), 1.0)

    @property
    def threads(self) -> float:
        """Threads that compute at once while it computes."""
        return max(self.cores, 1.0)


@dataclass(frozen=True)
class Sharing:
    """How cores are shared: `slowdown` as of `Processors`; `delay` is the measured over the computed wait for a core."""

    slowdown: float = 0.0
    delay: float = 1.0


@dataclass(frozen=True)
class Receive:
    """What the training thread does to take over a batch of a worker: `idle_ns` of it, and up to `held_ns` more while
    that worker makes the next one, as in Python both need its interpreter. `cores` are those that it needs meanwhile.
    """

    idle_ns: float = 0.0
    held_ns: float = 0.0
    cores: float = 1.0

    def find_job(self, left_ns: float) -> Job:
        """Return the work of taking over a batch of a worker that has so much left to do on the next."""
        return Job(self.idle_ns + min(self.held_ns, left_ns), self.cores)

    def scale(self, factor: float) -> Receive:
        """Return the same with this share of its time."""
        return replace(self, idle_ns=self.idle_ns * factor, held_ns=self.held_ns * factor)


@dataclass(frozen=True)
class LoopModel:
    """A training loop: how batches are made and what a step does once it has one.

    `batches` and `steps` are replayed in turn, from the start again when they run out. `cores` are those that the
    run may use, `others` the cores that other programs take. `extra_ns` is the amortised cost per step of what does
    not happen in every step (starting workers, checkpoints, validation). `receive` is paid for each batch of a worker.
    `left` is the part of every step that changes to the step itself have left so far.
    """

    batches: tuple[Job, ...]
    steps: tuple[Job, ...]
    workers: int
    prefetch: int = 2
    in_order: bool = True
    cores: float = 1.0
    others: float = 0.0
    extra_ns: float = 0.0
    receive: Receive = field(default_factory=Receive)
    sharing: Sharing = field(default_factory=Sharing)
    left: float = 1.0


@dataclass(frozen=True)
class Measured:
    """What a batch is made of. `read_ns` and `collate_ns` are wall times, one per batch; `_cpu_ns` parts of them."""

    batch_size: int
    read_ns: tuple[int, ...]
    read_cpu_ns: tuple[int, ...]
    collate_ns: tuple[int, ...]
    collate_cpu_ns: tuple[int, ...]
    batch_bytes: int

    @property
    def jobs(self) -> tuple[Job, ...]:
        """Return each batch as work for a worker."""
        walls = [read + collate for read, collate in zip(self.read_ns, self.collate_ns, strict=True)]
        cpus = [read + collate for read, collate in zip(self.read_cpu_ns, self.collate_cpu_ns, strict=True)]
        return tuple(Job(wall, min(cpu / wall, 1.0)) for wall, cpu in zip(walls, cpus, strict=True) if wall)


@dataclass(frozen=True)
class Observed:
    """What is known of a source. `loader` has the arguments of a DataLoader, as far as there is one."""

    measured: Measured | None
    loader: Any
    batch_size: int
    step_ns: int = 0
    cores: float | None = None
    origin: str = "made in this process"
