"""The measured training loop, as the simulator needs it: the cost of each batch and step, and the processors in
demand."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from collector.estimating.model import MOST_OTHERS, Customer, Job, LoopModel, Processors, Receive, average_stretch
from collector.estimating.simulation import simulate
from collector.format.intervals import Floats, Ints
from collector.format.schema.manifest import Loader
from collector.format.steps import StepSelection
from profiler_server.analysis.data.feeding import Feed
from profiler_server.diagnosis.limits.data import (
    DELAYS,
    LEAST_CORES,
    LEAST_KEPT,
    NEAR_FRAC,
    QUEUES_FROM,
    ROUNDED_CORES,
    USUAL_RECEIVE_NS,
)
from profiler_server.facts.loading import BatchTimes, MeasuredLoop
from profiler_server.facts.machine import HostLoad


@dataclass(frozen=True)
class Cores:
    """Numbers of processor cores: `usable` by the run, and needed by `training`, which is all work of the run outside
    of the loader. `load` is the sampled load of the host; None if not sampled.

    `computes` is true if steps run on the processors, not on a device.
    """

    usable: float
    training: float
    computes: bool
    load: HostLoad | None = None


def measure_queueing(cores: Cores, workers: int, recorded: float) -> tuple[float, float]:
    """Return how many times longer computing took because it waited for a core (wall time divided by processor time):
    for the work on batches, and for that of the training thread.

    The ratios come from the sampled run queues. Without samples, they are `recorded`, the ratio from the stages.
    """
    load = cores.load
    trainer = _find_ratio(load.queued_frac, min(load.process or 0.0, 1.0)) if load is not None else None
    if not workers:
        return trainer or recorded, trainer or recorded
    loading = _find_ratio(load.workers_queued_frac, load.workers) if load is not None else None
    either = loading or trainer or recorded
    return either, trainer or either


def _find_ratio(queued_frac: float | None, used: float) -> float | None:
    return 1.0 + queued_frac / used if queued_frac is not None and used > LEAST_CORES else None


def estimate_others(cores: Cores, workers: int) -> float:
    """Return how many cores other programs demand. They demand more cores than they use if they wait for cores.

    Let a program get U cores, and let its computing take s times as long because of this run. Then it demands U / (1 −
    U (s − 1)). The threads of this run count as runnable for the shares of time in which they ran or queued.
    """
    load = cores.load
    if load is None:
        return 0.0
    used = _find_used(cores, load)
    own = [Customer(min(1.0, (load.process or 0.0) + (load.queued_frac or 0.0)))]
    if workers and load.workers:
        each = (load.workers + (load.workers_queued_frac or 0.0)) / workers
        own += [Customer(min(1.0, each)) for _ in range(min(workers, MOST_OTHERS))]
    return _find_demand(Processors(max(cores.usable, 0.01)), own, used)


def _find_used(cores: Cores, load: HostLoad) -> float:
    """Return how many of the run's usable cores other programs used.

    The samples may not separate these cores from the rest of the host. If this run waited for cores, all use by other
    programs on the host counts as use of its cores.
    """
    if load.others_anywhere <= load.others or (load.stretch or 1.0) < QUEUES_FROM:
        return load.others
    own = load.workers + (load.process or 0.0)
    return max(load.others, min(load.others_anywhere, cores.usable - own))


def _find_demand(processors: Processors, own: list[Customer], used: float) -> float:
    """Return how many cores other programs demand if they got `used` cores beside the threads `own`. The fewest
    possible programs are assumed.
    """
    if used <= 0:
        return 0.0
    for programs in range(max(1, math.ceil(used - ROUNDED_CORES)), MOST_OTHERS + 1):
        each = used / programs
        longer = average_stretch(processors, [*own, *(Customer(min(1.0, each)) for _ in range(programs - 1))]) - 1.0
        if each * (1.0 + longer) <= 1.0 + ROUNDED_CORES:
            return programs * min(1.0, each / max(1.0 - each * longer, each))
    return used


_MODEL_BATCHES = 240
_CALIBRATION_ROUNDS = 7


def measure_loop(
    feed: Feed,
    selection: StepSelection,
    loader: Loader | None,
    batches: BatchTimes | None,
    cores: Cores,
    busy_frac: float = 0.0,
) -> MeasuredLoop | None:
    """Return the model of one loader from the regular steps and its recorded batches; None without regular steps.

    Without workers, the time in `next()` is the work itself, and replaces batch times that were not recorded. A device
    that is busy for `busy_frac` of each step needs this time, however short the wait for data.
    """
    regular = selection.regular
    if not regular.any():
        return None
    duration, wait = selection.duration_ns[regular], feed.wait_ns[regular]
    wait = np.minimum(wait, (duration * (1.0 - busy_frac)).astype(np.int64))
    fetched = count_batches(feed.fetches[regular])
    fetches = float(fetched.mean())
    own = ((duration - wait) / fetched)[-_MODEL_BATCHES:]
    workers = loader.num_workers if loader else 0
    of_batch, of_step = measure_queueing(cores, workers, batches.stretch if batches is not None else 1.0)
    regular_ns, own_ns = float(duration.mean()), float((duration - wait).mean())
    making_ns = _find_making(loader, batches, fetches)
    computing, beside_ns = _measure_computing(cores, regular_ns, own_ns, making_ns)
    jobs, assumed = _build_jobs(
        batches, loader, (wait / fetched)[-_MODEL_BATCHES:], of_batch, 0.0 if workers else beside_ns / fetches
    )
    kept = _keep_alone(cores, workers, computing, of_step) if cores.computes and jobs else 1.0
    model = LoopModel(
        batches=jobs,
        steps=tuple(Job(float(wall) * kept, min(computing / kept, cores.usable)) for wall in own),
        workers=workers,
        prefetch=(loader.prefetch_factor or 2) if loader else 2,
        in_order=loader.in_order if loader else True,
        cores=cores.usable,
        others=estimate_others(cores, workers),
        extra_ns=float(selection.duration_ns[selection.kept].mean()) - regular_ns,
        receive=_build_receive(batches, of_step),
    )
    model, check = _calibrate(model, regular_ns / fetches)
    return MeasuredLoop(model, fetches, regular_ns, own_ns, check, assumed, _find_contention(model))


def count_batches(fetches: Ints) -> Floats:
    """Return the number of batches of each step. If a step fetches a group for later steps, each step gets the mean."""
    if fetches.max() > 1 and not fetches.min():
        return np.full(len(fetches), fetches.mean())
    return np.maximum(fetches, 1).astype(np.float64)


def _find_making(loader: Loader | None, batches: BatchTimes | None, fetches: float) -> float | None:
    if loader is None or loader.num_workers:
        return 0.0
    return None if batches is None or batches.cpu_ns is None else fetches * float(batches.cpu_ns.mean())


def _measure_computing(cores: Cores, step_ns: float, own_ns: float, making_ns: float | None) -> tuple[float, float]:
    """Return how many cores training uses while it is not waiting for data, from the cores that its process uses, and
    the processor time per step that its process must have used while it waits for data: training cannot have used more
    than all cores.

    A thread that sleeps, or waits for a device, needs no core, however many threads PyTorch may start. `making_ns` is
    the processor time per step for batches that the training thread makes itself; None if unknown.
    """
    process = cores.load.process if cores.load is not None else None
    if process is None or own_ns <= 0:
        return cores.training, 0.0
    used_ns = process * (own_ns if making_ns is None else step_ns) - (making_ns or 0.0)
    return min(max(used_ns, 0.01 * own_ns) / own_ns, cores.usable), max(used_ns - cores.usable * own_ns, 0.0)


def _keep_alone(cores: Cores, workers: int, computing: float, stretch: float) -> float:
    """Return the share of a step that would remain on a quiet host: waiting stays as long, computing becomes shorter.

    `stretch` is how many times longer the computing took. `computing` is the processor time per time of the step. A
    thread that waits for workers also queues when it wakes up. If this queueing was sampled, the computed share and the
    sampled share are averaged, which fits recorded loops better than either alone.
    """
    queued = cores.load.queued_frac if cores.load is not None and workers else None
    longer = min(computing, 1.0 / stretch) * (stretch - 1.0)
    longer = longer if queued is None else (longer + queued) / 2
    return max(1.0 - longer, LEAST_KEPT)


def _find_contention(model: LoopModel) -> float:
    """Return the cores that other programs demand, as a share of all cores or of the total demand if that is larger."""
    loading = max(model.workers, 1) * sum(job.cores for job in model.batches) / max(len(model.batches), 1)
    own = loading + (model.steps[0].cores if model.workers else 0.0)
    return model.others / max(model.cores, model.others + own)


def _build_jobs(
    batches: BatchTimes | None, loader: Loader | None, waits: Floats, stretch: float, beside_ns: float = 0.0
) -> tuple[tuple[Job, ...], bool]:
    """Return the batches of a loader, and whether their processor time is assumed. `beside_ns` is the processor time of
    other threads that help to make a batch."""
    if batches is not None:
        held = batches.total_ns if batches.held_ns is None else batches.held_ns
        total = held[-_MODEL_BATCHES:]
        cpu = total if batches.cpu_ns is None else np.minimum(batches.cpu_ns[-_MODEL_BATCHES:] + beside_ns, total)
        alone = np.maximum(cpu, total - cpu * (stretch - 1.0))
        jobs = tuple(Job(float(w), float(min(1.0, c / w)) if w else 0.0) for w, c in zip(alone, cpu, strict=True))
        return jobs, batches.cpu_ns is None
    if loader is not None and loader.num_workers == 0:
        return tuple(Job(float(wait), 1.0) for wait in waits), True
    return (), True


def _build_receive(batches: BatchTimes | None, stretch: float) -> Receive:
    seen = batches.receiving if batches is not None else None
    if seen is None:
        return Receive(USUAL_RECEIVE_NS)
    return Receive(seen.idle_ns / stretch, seen.held_ns / stretch)


def _calibrate(model: LoopModel, step_ns: float) -> tuple[LoopModel, float]:
    """Return the model with the processor delay that reproduces the run best, and the ratio of its simulated step to
    the measured step.

    The delay is how long a waking thread waits for its turn. It depends on the scheduler, and on how long others
    compute at a time. If the simulated step is still too long, the recorded times already contain this wait, and all
    times are shortened.
    """
    check = simulate(model).step_ns / step_ns if step_ns else 1.0
    if model.workers == 0 or not check:
        return model, check
    if abs(check - 1.0) > NEAR_FRAC:
        model, check = _fit(lambda delay: replace(model, sharing=replace(model.sharing, delay=delay)), DELAYS, step_ns)
    if check > 1.0 + NEAR_FRAC:
        model, check = _fit(lambda factor: _shorten(model, factor), (LEAST_KEPT, 1.0), step_ns)
    return model, check


def _fit(change: Callable[[float], LoopModel], ends: tuple[float, float], step_ns: float) -> tuple[LoopModel, float]:
    """Return the changed model whose simulated step equals the measured step, and the ratio of the two steps.

    `change` makes the model from a figure between both `ends`. The simulated step must grow with this figure.
    """
    low, high = ends
    for _ in range(_CALIBRATION_ROUNDS):
        middle = (low + high) / 2
        low, high = (low, middle) if simulate(change(middle)).step_ns > step_ns else (middle, high)
    fitted = change((low + high) / 2)
    return fitted, simulate(fitted).step_ns / step_ns


def _shorten(model: LoopModel, factor: float) -> LoopModel:
    def shorten(job: Job, most: float) -> Job:
        least = job.wall_ns * min(job.cores, most) / most
        wall = max(job.wall_ns * factor, least)
        return Job(wall, min(most, job.cores * job.wall_ns / wall) if wall else 0.0)

    steps = tuple(Job(job.wall_ns * factor, job.cores) for job in model.steps)
    return replace(model, batches=tuple(shorten(job, 1.0) for job in model.batches), steps=steps)
