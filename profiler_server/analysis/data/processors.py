"""What the processors were asked for while a run was recorded: by its steps, its workers and other programs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from collector.estimating.model import MOST_OTHERS, Customer, Processors, average_stretch
from profiler_server.diagnosis.limits.data import LEAST_CORES, QUEUES_FROM, ROUNDED_CORES
from profiler_server.facts.machine import HostLoad


@dataclass(frozen=True)
class Cores:
    """`usable` cores of the run, those that `training` asks for outside of the loader, and what was sampled of them.

    `computes` says that steps run on the processors, not on a device.
    """

    usable: float
    training: float
    computes: bool
    load: HostLoad | None = None


@dataclass(frozen=True)
class Queueing:
    """How many times longer than its processor time the computing of batches and of steps took, as recorded."""

    batch: float
    step: float


def measure_queueing(cores: Cores, workers: int, recorded: float) -> Queueing:
    """Return what the run queues said; where they were not sampled, `recorded`, which the stages of batches showed."""
    load = cores.load
    trainer = _find_ratio(load.queued_frac, min(load.process or 0.0, 1.0)) if load is not None else None
    if not workers:
        return Queueing(trainer or recorded, trainer or recorded)
    loading = _find_ratio(load.workers_queued_frac, load.workers) if load is not None else None
    either = loading or trainer or recorded
    return Queueing(either, trainer or either)


def _find_ratio(queued_frac: float | None, used: float) -> float | None:
    return 1.0 + queued_frac / used if queued_frac is not None and used > LEAST_CORES else None


def estimate_others(cores: Cores, workers: int) -> float:
    """Return how many cores other programs ask for, from how many they were seen to use.

    A program that got U cores, and whose computing took s times as long because of this run, asks for
    U / (1 − U (s − 1)). The threads of this run could run for the shares of time that they ran or queued.
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
    """Return the cores that others took of those that the run may use.

    Where the samples do not tell those from the rest of the host, they are taken for those of the run if it queued.
    """
    if load.others_anywhere <= load.others or (load.stretch or 1.0) < QUEUES_FROM:
        return load.others
    own = load.workers + (load.process or 0.0)
    return max(load.others, min(load.others_anywhere, cores.usable - own))


def _find_demand(processors: Processors, own: list[Customer], used: float) -> float:
    """Return what programs ask for that got `used` cores beside these threads, for the fewest that can have got so many."""
    if used <= 0:
        return 0.0
    for programs in range(max(1, math.ceil(used - ROUNDED_CORES)), MOST_OTHERS + 1):
        each = used / programs
        longer = average_stretch(processors, [*own, *(Customer(min(1.0, each)) for _ in range(programs - 1))]) - 1.0
        if each * (1.0 + longer) <= 1.0 + ROUNDED_CORES:
            return programs * min(1.0, each / max(1.0 - each * longer, each))
    return used
