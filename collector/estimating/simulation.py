"""A discrete-event simulator of PyTorch's DataLoader and the loop that it feeds.

Index batches go to the workers in turn; `workers × prefetch` are asked for at the start, and one more each time that a
batch is received. Batches are delivered in order (or the first that is ready), and a worker makes one at a time. A job
is a part that waits and a part that needs a processor; when all running jobs together need more cores than there are,
every processor part is stretched alike. Batch and step times are replayed in the order in which they were recorded.

Not modelled: the pin-memory thread, the time to pickle and move a batch beyond what its worker recorded, caches.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

WARM_UP_STEPS = 20
MAX_STEPS = 240
MOST_WORKERS = 8
MOST_WORKERS_PER_CORE = 4
"""No more workers are proposed than this, or than four per core where that is more: each takes memory and a process."""


@dataclass(frozen=True)
class Job:
    """Work of `wall_ns` when nothing else runs, which keeps `cores` processors busy on average (0 for pure waiting)."""

    wall_ns: float
    cores: float


@dataclass(frozen=True)
class LoopModel:
    """A training loop: how batches are made and what a step does once it has one.

    `batches` and `steps` are replayed in turn, from the start again when they run out. `cores` are those that the
    run may use, `others` the cores that other programs take. `extra_ns` is the amortised cost per step of what does
    not happen in every step (starting workers, checkpoints, validation).
    """

    batches: tuple[Job, ...]
    steps: tuple[Job, ...]
    workers: int
    prefetch: int = 2
    in_order: bool = True
    cores: float = 1.0
    others: float = 0.0
    extra_ns: float = 0.0


@dataclass(frozen=True)
class Simulated:
    """Mean step and mean wait for data, without `extra_ns`, once the pipeline has filled; `steps_ns` one by one."""

    step_ns: float
    wait_ns: float
    steps_ns: tuple[float, ...]


def simulate(model: LoopModel, count: int | None = None) -> Simulated:
    """Run the model for `count` steps and average those after the warm-up. A model without batches never waits."""
    count = count or min(MAX_STEPS, max(60, len(model.steps)))
    if not model.batches:
        walls = tuple(step.wall_ns for step in model.steps)
        return Simulated(sum(walls) / max(len(walls), 1), 0.0, walls)
    if model.workers == 0:
        return _simulate_in_process(model, count)
    if model.in_order and not _may_overload(model):
        return _simulate_uncontended(model, count)
    return _Contended(model, count).run()


def _may_overload(model: LoopModel) -> bool:
    batch = max(job.cores for job in model.batches)
    step = max(job.cores for job in model.steps)
    return model.workers * batch + step + model.others > model.cores


def _simulate_in_process(model: LoopModel, count: int) -> Simulated:
    """Without workers each batch is made between two steps."""
    waits, owns = (
        [_run_alone(jobs[number % len(jobs)], model) for number in range(count)]
        for jobs in (model.batches, model.steps)
    )
    steps = tuple(wait + own for wait, own in zip(waits, owns, strict=True))
    return Simulated(sum(steps) / count, sum(waits) / count, steps)


def _run_alone(job: Job, model: LoopModel) -> float:
    return job.wall_ns * _stretch(job.cores, max(1.0, (job.cores + model.others) / model.cores))


def _stretch(cores: float, factor: float) -> float:
    """Return how much longer a job takes when its processor part is stretched by that factor."""
    share = min(cores, 1.0)
    return 1.0 - share + share * factor


def _simulate_uncontended(model: LoopModel, count: int) -> Simulated:
    """Without contention and in order, every time follows from earlier ones: no events are needed."""
    window = model.workers * model.prefetch
    batches, steps = [job.wall_ns for job in model.batches], [job.wall_ns for job in model.steps]
    free = [0.0] * model.workers
    received = [0.0] * count
    now = 0.0
    asked = [0.0] * count
    ends = [0.0] * count
    for number in range(count):
        asked[number] = now
        worker = number % model.workers
        sent = received[number - window] if number >= window else 0.0
        free[worker] = max(free[worker], sent) + batches[number % len(batches)]
        now = received[number] = max(now, free[worker])
        now += steps[number % len(steps)]
        ends[number] = now
    return _average(asked, received, ends)


def _average(asked: list[float], received: list[float], ends: list[float]) -> Simulated:
    first = min(WARM_UP_STEPS, len(ends) // 3)
    kept = len(ends) - first
    start = ends[first - 1] if first else 0.0
    wait = sum(received[n] - asked[n] for n in range(first, len(ends)))
    starts = [start, *ends[first:-1]]
    steps = tuple(end - begin for begin, end in zip(starts, ends[first:], strict=True))
    return Simulated((ends[-1] - start) / kept, wait / kept, steps)


class _Running:
    """A job under way: what is left of it, and its share that needs a processor."""

    __slots__ = ("batch", "cores", "left_ns", "share")

    def __init__(self, job: Job, batch: int) -> None:
        self.batch = batch
        self.left_ns = job.wall_ns
        self.cores = job.cores
        self.share = min(job.cores, 1.0)


class _Contended:
    """The general case: jobs progress side by side, slower while they need more cores than there are."""

    def __init__(self, model: LoopModel, count: int) -> None:
        self.model = model
        self.count = count
        self.waiting: list[deque[int]] = [deque() for _ in range(model.workers)]
        self.outstanding = [0] * model.workers
        self.busy: list[_Running | None] = [None] * model.workers
        self.ready: dict[int, int] = {}
        self.step: _Running | None = None
        self.sent = self.turn = 0
        self.now = 0.0
        self.asked = [0.0]
        self.received: list[float] = []
        self.ends: list[float] = []

    def run(self) -> Simulated:
        for _ in range(self.model.workers * self.model.prefetch):
            self._send()
        while len(self.ends) < self.count:
            if self.step is None:
                self._receive()
            self._advance()
        return _average(self.asked[: self.count], self.received[: self.count], self.ends)

    def _send(self) -> None:
        """Ask the next worker in turn; out of order, one that has room."""
        workers = self.model.workers
        if not self.model.in_order:
            for _ in range(workers):
                if self.outstanding[self.turn] < self.model.prefetch:
                    break
                self.turn = (self.turn + 1) % workers
        self.waiting[self.turn].append(self.sent)
        self.outstanding[self.turn] += 1
        self.sent += 1
        self._start(self.turn)
        self.turn = (self.turn + 1) % workers

    def _start(self, worker: int) -> None:
        if self.busy[worker] is None and self.waiting[worker]:
            batch = self.waiting[worker].popleft()
            self.busy[worker] = _Running(self.model.batches[batch % len(self.model.batches)], batch)

    def _receive(self) -> None:
        wanted = len(self.received) if self.model.in_order else next(iter(self.ready), -1)
        if wanted not in self.ready:
            return
        self.outstanding[self.ready.pop(wanted)] -= 1
        self.received.append(self.now)
        self.step = _Running(self.model.steps[len(self.ends) % len(self.model.steps)], -1)
        self._send()

    def _advance(self) -> None:
        """Move to the next time that a job ends."""
        running = [job for job in (*self.busy, self.step) if job is not None]
        need = self.model.others + sum(job.cores for job in running)
        factor = max(1.0, need / self.model.cores)
        slow = [1.0 - job.share + job.share * factor for job in running]
        lasts = [job.left_ns * by for job, by in zip(running, slow, strict=True)]
        took = min(lasts)
        self.now += took
        for job, by in zip(running, slow, strict=True):
            job.left_ns -= took / by
        # However numbers are rounded: with times of years some of it would be left for ever.
        running[lasts.index(took) if took in lasts else 0].left_ns = 0.0
        self._finish()

    def _finish(self) -> None:
        for worker, job in enumerate(self.busy):
            if job is not None and job.left_ns <= 1e-3:
                self.ready[job.batch] = worker
                self.busy[worker] = None
                self._start(worker)
        if self.step is not None and self.step.left_ns <= 1e-3:
            self.step = None
            self.ends.append(self.now)
            self.asked.append(self.now)


def bound_workers(cores: float, cpu_frac: float) -> int:
    """Return the most workers to propose: as many as the cores can feed, if each needs that share of one.

    Workers that compute beyond the cores only take turns, and take processors from the step and from others; those
    that wait for storage are bounded by what a host stands.
    """
    fed = int(cores / max(cpu_frac, 0.01) + 0.25)
    return max(1, min(fed, max(MOST_WORKERS, int(MOST_WORKERS_PER_CORE * cores))))


def find_workers(model: LoopModel, most: int = 32) -> int:
    """Return the smallest number of workers whose simulated step is within 3 % of the best."""
    steps: dict[int, float] = {}

    def step_ns(workers: int) -> float:
        if workers not in steps:
            steps[workers] = simulate(replace(model, workers=workers)).step_ns
        return steps[workers]

    tried = 1
    while tried < most and step_ns(min(2 * tried, most)) < 0.97 * step_ns(tried):
        tried = min(2 * tried, most)
    best = min(steps.values(), default=step_ns(tried))
    low, high = 1, min(workers for workers in (*steps, tried) if step_ns(workers) <= 1.03 * best)
    low = high // 2 + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if step_ns(middle) <= 1.03 * best else (middle + 1, high)
    return high
