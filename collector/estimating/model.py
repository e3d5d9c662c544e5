"""A training loop as the simulator is given it: jobs, how batches are received, and how processors are shared."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


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
