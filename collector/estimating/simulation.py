"""Simulate PyTorch's DataLoader and its training loop event by event, to predict the step time under other settings.

Index batches go to the workers in turn; `workers × prefetch` are requested at the start, and one more after each
received batch. Batches are delivered in order (or as soon as ready), and a worker makes one batch at a time. A job has
waiting time and processor time; other running threads stretch the processor time, as in `collector.estimating.model`.
Batch and step times are replayed in their recorded order.

Not modelled: the pin-memory thread, the time to pickle and move a batch beyond its worker's record, caches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from collector.estimating.model import Customer, Job, LoopModel, Processors, list_others, mix, weigh_stretch
from collector.format.keeping import part

WARM_UP_STEPS = 20
_NOT_STRETCHED = 1.002
_KEPT = 64
MAX_STEPS = 240
MOST_WORKERS = 8
MOST_WORKERS_PER_CORE = 4
"""At most MOST_WORKERS, or four per core if that is more, are proposed: each worker takes memory and a process."""


@dataclass(frozen=True)
class Simulated:
    """The result of a simulation: mean step and mean data wait per step in ns after the warm-up, without `extra_ns`.

    `steps_ns` are the times of the single steps after the warm-up, in order.
    """

    step_ns: float
    wait_ns: float
    steps_ns: tuple[float, ...]


def simulate(model: LoopModel, count: int | None = None) -> Simulated:
    """Simulate `count` steps (None: as many as `model.steps`, 60 to MAX_STEPS) and average those after the warm-up. A
    model without batches never waits: its steps are averaged as they are.
    """
    return part(_keep_latest)(model, count)


def _keep_latest() -> Callable[[LoopModel, int | None], Simulated]:
    """Return the simulation with a cache, which `part` keeps. Rules simulate the same models again and again."""
    return lru_cache(maxsize=_KEPT)(_simulate)


def _simulate(model: LoopModel, count: int | None) -> Simulated:
    count = count or min(MAX_STEPS, max(60, len(model.steps)))
    if not model.batches:
        walls = tuple(step.wall_ns for step in model.steps)
        return Simulated(sum(walls) / max(len(walls), 1), 0.0, walls)
    stretches = _Stretches(model)
    if model.workers == 0:
        return _simulate_in_process(model, count, stretches)
    if model.in_order and max(stretches.find(model.workers, True)) < _NOT_STRETCHED:
        return _simulate_uncontended(model, count)
    return _Contended(model, count, stretches).run()


class _Stretches:
    """The factors by which threads that share cores lengthen the processor time of batches and steps."""

    def __init__(self, model: LoopModel) -> None:
        self._processors = Processors(max(model.cores, 0.01), model.sharing.slowdown)
        self._worker = Customer(_share_busy(model.batches))
        self._step = _find_step_customer(model.steps)
        self._delay = model.sharing.delay
        self._mixed = [mix(list_others(model.others))]
        self._found: dict[tuple[int, bool], tuple[float, float]] = {}

    def find(self, workers: int, stepping: bool) -> tuple[float, float]:
        """Return the factors for the work of a worker and of the training thread, while `workers` workers are busy and,
        with `stepping`, the training thread works."""
        key = (workers, stepping)
        if key not in self._found:
            beside = self._mix(max(workers - 1, 0))
            batch = self._stretch(mix([self._step], beside) if stepping else beside, 1.0)
            step = self._stretch(self._mix(workers), self._step.threads) if stepping else 1.0
            self._found[key] = batch, step
        return self._found[key]

    def _mix(self, workers: int) -> tuple[float, ...]:
        while len(self._mixed) <= workers:
            self._mixed.append(mix([self._worker], self._mixed[-1]))
        return self._mixed[workers]

    def _stretch(self, beside: tuple[float, ...], threads: float) -> float:
        return 1.0 + self._delay * (weigh_stretch(self._processors, beside, threads) - 1.0)


def _share_busy(jobs: Sequence[Job]) -> float:
    wall = sum(job.wall_ns for job in jobs)
    return sum(job.wall_ns * job.share for job in jobs) / wall if wall else 0.0


def _find_step_customer(steps: Sequence[Job]) -> Customer:
    wall = sum(job.wall_ns for job in steps)
    if not wall:
        return Customer(0.0)
    return Customer(_share_busy(steps), sum(job.wall_ns * job.threads for job in steps) / wall)


def _simulate_in_process(model: LoopModel, count: int, stretches: _Stretches) -> Simulated:
    batch, step = stretches.find(1, False)[0], stretches.find(0, True)[1]
    waits = [_extend(model.batches[number % len(model.batches)], batch) for number in range(count)]
    owns = [_extend(model.steps[number % len(model.steps)], step) for number in range(count)]
    steps = tuple(wait + own for wait, own in zip(waits, owns, strict=True))
    return Simulated(sum(steps) / count, sum(waits) / count, steps)


def _extend(job: Job, stretch: float) -> float:
    return job.wall_ns * (1.0 + job.share * (stretch - 1.0))


def _simulate_uncontended(model: LoopModel, count: int) -> Simulated:
    """Return the simulation of a loader that delivers in order and whose workers do not compete for cores.

    Each time is computed from earlier times, without a queue of events.
    """
    window = model.workers * model.prefetch
    batches, steps = [job.wall_ns for job in model.batches], [job.wall_ns for job in model.steps]
    receive = model.receive
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
        now = max(now, free[worker])
        left = _find_left(model, number, now, free[worker], received) if receive.held_ns else 0.0
        now = received[number] = now + receive.find_job(left).wall_ns
        now += steps[number % len(steps)]
        ends[number] = now
    return _average(asked, received, ends)


def _find_left(model: LoopModel, number: int, now: float, free: float, received: list[float]) -> float:
    """Return the ns from `now` until the worker that made batch `number` has made its next one; 0 if it is idle now."""
    window = model.workers * model.prefetch
    for later in range(number + model.workers, number + window, model.workers):
        start = max(free, received[later - window] if later >= window else 0.0)
        free = start + model.batches[later % len(model.batches)].wall_ns
        if start > now:
            return 0.0
        if free > now:
            return free - now
    return 0.0


def _average(asked: list[float], received: list[float], ends: list[float]) -> Simulated:
    first = min(WARM_UP_STEPS, len(ends) // 3)
    kept = len(ends) - first
    start = ends[first - 1] if first else 0.0
    wait = sum(received[n] - asked[n] for n in range(first, len(ends)))
    starts = [start, *ends[first:-1]]
    steps = tuple(end - begin for begin, end in zip(starts, ends[first:], strict=True))
    return Simulated((ends[-1] - start) / kept, wait / kept, steps)


class _Running:
    __slots__ = ("batch", "left_ns", "share")

    def __init__(self, job: Job, batch: int) -> None:
        self.batch = batch
        self.left_ns = job.wall_ns
        self.share = job.share


class _Contended:
    """The simulation of the general case: jobs run side by side, and slow each other down on shared processors."""

    def __init__(self, model: LoopModel, count: int, stretches: _Stretches) -> None:
        self.model = model
        self.count = count
        self.stretches = stretches
        self.waiting: list[deque[int]] = [deque() for _ in range(model.workers)]
        self.outstanding = [0] * model.workers
        self.busy: list[_Running | None] = [None] * model.workers
        self.ready: dict[int, int] = {}
        self.step: _Running | None = None
        self.receives = False
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
        """Request a batch from the next worker in turn. Without `in_order`, skip workers with `prefetch` open requests."""
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
        worker = self.ready.pop(wanted)
        self.outstanding[worker] -= 1
        making = self.busy[worker]
        self.step = _Running(self.model.receive.find_job(making.left_ns if making is not None else 0.0), -1)
        self.receives = True
        if not self.step.left_ns:
            self._go_on()

    def _advance(self) -> None:
        workers = [job for job in self.busy if job is not None]
        batch, step = self.stretches.find(len(workers), self.step is not None)
        running = workers if self.step is None else [*workers, self.step]
        slow = [1.0 + job.share * (batch - 1.0) for job in workers]
        if self.step is not None:
            slow.append(1.0 + self.step.share * (step - 1.0))
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
            self._go_on()

    def _go_on(self) -> None:
        """Advance the training thread to what it does next: from receiving a batch to the step, from the step to
        waiting for the next batch."""
        if self.receives:
            self.receives = False
            self.received.append(self.now)
            self.step = _Running(self.model.steps[len(self.ends) % len(self.model.steps)], -1)
            self._send()
            return
        self.step = None
        self.ends.append(self.now)
        self.asked.append(self.now)


def bound_workers(cores: float, cpu_frac: float) -> int:
    """Return the greatest number of workers to propose, at least 1: as many as the cores can serve if each worker uses
    `cpu_frac` of a core.

    More computing workers would only take turns, and take processors from the step and from other programs. The number
    of workers that mostly wait is limited by MOST_WORKERS and MOST_WORKERS_PER_CORE.
    """
    fed = int(cores / max(cpu_frac, 0.01) + 0.25)
    return max(1, min(fed, max(MOST_WORKERS, int(MOST_WORKERS_PER_CORE * cores))))


def find_workers(model: LoopModel, most: int = 32) -> int:
    """Return the smallest number of workers whose simulated step is within 3 % of the best step found.

    Numbers are tried up to `most` by doubling, as long as each doubling shortens the step by more than 3 %.
    """
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
