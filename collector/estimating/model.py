"""Compute how much longer work takes on processors that it shares with other threads, which come and go.

A thread computes, then waits for something else, and computes again. When more threads are runnable than there are
cores, each gets an equal share. If rates depend only on the number of runnable threads, such a network has a
product-form solution. It depends only on the mean share of processor time, not on the length of single bursts (Baskett,
Chandy, Muntz and Palacios, "Open, closed, and mixed networks of queues", 1975), so a job is described by its share of
processor time.

v(R) = min(1, P / R) / (1 + slowdown · (min(R, P) − 1)⁺ / (P − 1)) is the speed of each of R threads on P cores. P(j) ∝
c_j · Π_{m ≤ j} 1 / v(m) is the probability that j of the other threads are runnable, with c_j the coefficients of Π (1
− ρ + ρ x). The mean of 1 / v(j + 1) over P(j) is the stretch of a job's processor time (the arrival theorem of Sevcik
and Mitrani, and of Lavenberg and Reiser, 1980 to 1981): a job sees the other threads in the state that they would be in
without the job.

Not included: priorities, affinities of single threads, the length of a time slice, and that two hardware threads of one
core give less than two cores.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

MOST_OTHERS = 64
"""The greatest number of threads of other programs in the model."""


@dataclass(frozen=True)
class Processors:
    """The cores that a training loop may use.

    When all cores work at once, each is slower than one that works alone by `slowdown`, a fraction (memory, clock, …).
    """

    cores: float
    slowdown: float = 0.0

    def find_speed(self, runnable: float) -> float:
        """Return v(R), the speed of each of R runnable threads; 1 is the speed of a thread alone."""
        if runnable <= 0:
            return 1.0
        busy = max(0.0, min(runnable, self.cores) - 1.0) / max(self.cores - 1.0, 1.0)
        return min(1.0, self.cores / runnable) / (1.0 + self.slowdown * busy)


@dataclass(frozen=True)
class Customer:
    """A group of `threads` threads that are runnable together for a `share` (0 to 1) of time if nothing delays them."""

    share: float
    threads: float = 1.0


def list_others(others: float) -> tuple[Customer, ...]:
    """Return customers for `others`, a number of cores that other programs use: one per whole core, one for the rest."""
    if math.isnan(others) or others <= 0:
        return ()
    others = min(others, float(MOST_OTHERS))
    whole = int(others)
    rest = (Customer(others - whole),) if others > whole else ()
    return (*(Customer(1.0) for _ in range(whole)), *rest)


def find_stretch(processors: Processors, others: Sequence[Customer], threads: float = 1.0) -> float:
    """Return the factor by which the other threads, `others`, lengthen the processor time of a job that computes on
    `threads` threads."""
    return weigh_stretch(processors, mix(others), threads)


def mix(customers: Iterable[Customer], onto: Sequence[float] = (1.0,)) -> tuple[float, ...]:
    """Return `onto` times the polynomial 1 − ρ + ρ x^k of each customer, as coefficients. ρ is the share of a customer,
    k its number of threads.

    Coefficient n is the chance that n threads are runnable. A fractional k is interpolated between its neighbours.
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
    """Return the factor of `find_stretch`. `coefficients` is what `mix` returns for the customers."""
    weight, whole, slower = 1.0, 0.0, 0.0
    for number, coefficient in enumerate(coefficients):
        weight /= processors.find_speed(number)
        likely = coefficient * weight
        whole += likely
        slower += likely / processors.find_speed(number + threads)
    return slower / whole * processors.find_speed(threads)


def average_stretch(processors: Processors, seen: Iterable[Customer]) -> float:
    """Return the factor by which other threads lengthen a job's processor time. `seen` are these threads. Their shares
    are fractions of time in which they were seen running, so delays by sharing are in them already.
    """
    return sum(likely / processors.find_speed(number + 1) for number, likely in enumerate(mix(seen)))


@dataclass(frozen=True)
class Job:
    """Work that takes `wall_ns` when nothing else runs, and uses `cores` processors on average (0 for pure waiting)."""

    wall_ns: float
    cores: float

    @property
    def share(self) -> float:
        """The fraction of `wall_ns` in which the job needs at least one processor: `cores`, at most 1."""
        return min(max(self.cores, 0.0), 1.0)

    @property
    def threads(self) -> float:
        """The number of threads that compute at once while the job computes: `cores`, at least 1."""
        return max(self.cores, 1.0)


@dataclass(frozen=True)
class Sharing:
    """How cores are shared, as measured in a run. `slowdown` is as in `Processors`; `delay` is the measured wait for a
    core divided by the wait that this model computes.
    """

    slowdown: float = 0.0
    delay: float = 1.0


@dataclass(frozen=True)
class Receive:
    """The training thread's work to receive a batch from a worker, which uses `cores` cores on average.

    The work takes `idle_ns`. While the worker makes its next batch, the work takes up to `held_ns` more, because in
    Python both need the interpreter lock.
    """

    idle_ns: float = 0.0
    held_ns: float = 0.0
    cores: float = 1.0

    def find_job(self, left_ns: float) -> Job:
        """Return the work of receiving a batch from a worker that has `left_ns` of work left on its next batch."""
        return Job(self.idle_ns + min(self.held_ns, left_ns), self.cores)

    def scale(self, factor: float) -> Receive:
        return replace(self, idle_ns=self.idle_ns * factor, held_ns=self.held_ns * factor)


@dataclass(frozen=True)
class LoopModel:
    """A training loop: the work of each batch and of each step without data wait, and the settings of the loader.

    `batches` and `steps` are replayed in turn, from the start again at their end. `cores` are available to the run;
    other programs use `others` of them. `extra_ns` is the cost per step of rare work (starting workers, checkpoints,
    validation), amortised. `receive` is paid for each batch of a worker. `left` is the fraction of every step that
    remains after changes to the step itself, 1 without changes.
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
