"""Facts derived from the other facts of a rank: simulations, statistical tests, and functions named from samples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np

from collector.estimating.model import LoopModel
from collector.estimating.simulation import bound_workers, find_workers, simulate
from collector.format.intervals import Ints
from collector.format.steps import find_stall_limit
from profiler_server.analysis.change_points import find_shift
from profiler_server.analysis.data.prediction import predict_without_loading
from profiler_server.analysis.stacks.naming import bound_share
from profiler_server.analysis.stacks.stacks import Stacks
from profiler_server.analysis.steps.interruptions import StepCauses
from profiler_server.diagnosis.limits.facts import CAPPED_NEED, LATE_FRAC
from profiler_server.diagnosis.limits.stacks import LEAST_SAMPLES
from profiler_server.diagnosis.limits.thread import MIN_STALLS, MOST_STALLS_FRAC
from profiler_server.diagnosis.limits.verdict import ALIKE_RATIO
from profiler_server.facts.case import Case
from profiler_server.facts.loading import Choice, Choices
from profiler_server.facts.steps import Sampled, SampledShare, Steps, read_column

_PREFETCHED = (4, 8, 16)
_MOST_LOOKED_AT = 20
_KEEPS_TRACEBACK = ("format_stack", "torch/fx/traceback.py")
K = TypeVar("K")
V = TypeVar("V")


def derive(case: Case) -> Case:
    """Return the case with derived facts added: stalled steps and their cause, a shift, loader arguments to choose."""
    return replace(
        case,
        steps=_derive_steps(case.steps),
        loading=replace(case.loading, choices=_choose(case)),
    )


def _derive_steps(steps: Steps) -> Steps:
    selection = steps.selection
    regular = np.flatnonzero(selection.regular)
    durations = selection.duration_ns[regular]
    if not len(regular):
        return steps
    stalled = regular[durations > find_stall_limit(durations)]
    is_some = MIN_STALLS <= len(stalled) <= MOST_STALLS_FRAC * len(regular)
    cause = _name_cause(steps, stalled, float(np.median(durations))) if is_some else ""
    return replace(steps, shift=find_shift(durations), stalled=stalled, stall_cause=cause)


def _name_cause(steps: Steps, stalls: Ints, usual_ns: float) -> str:
    """Return the interruption that explains most of the stalled steps, those with the indices `stalls`; "" if none."""
    starts, durations = read_column(steps.rows, "start_ns"), steps.selection.duration_ns
    causes = StepCauses(steps.interruptions, starts, starts + durations, steps.selection.kept)
    found = [causes.find(int(at), float(durations[at]) - usual_ns) for at in stalls[:_MOST_LOOKED_AT]]
    named = Counter(entry[0].label for entry in found if entry is not None)
    label, count = named.most_common(1)[0] if named else ("", 0)
    return label if 2 * count > len(found) else ""


def _choose(case: Case) -> Choices:
    loading = case.loading
    choices = Choices(spared_ns=_find_spared_ns(case))
    if not loading.is_input_bound:
        return choices
    choices = replace(choices, workers=choose_workers(case))
    if loading.loader is None or loading.batches is None or not loading.loader.num_workers:
        return choices
    deeper = _choose_prefetch(loading.loop.model) if loading.not_ready_frac > LATE_FRAC else None
    return replace(choices, prefetch=deeper, fewer_workers=_find_fewer(case, loading.loader.num_workers))


def choose_workers(case: Case) -> Choice:
    """Return the smallest number of workers whose simulated step is within 3 % of the shortest, like `estimate`.

    If the simulation does not reproduce the run, the number is W = S / (T − D). S is the work on the batches of a step,
    T the step, and D its wait for data.
    """
    loop = case.loading.loop
    most = bound_workers(case.host.cores, case.loading.cpu_need)
    if loop.trusted:
        workers = find_workers(replace(loop.model, workers=1), most=most)
        return Choice(workers, "the smallest number whose step is within 3 % of the best")
    own_ns = max(loop.regular_step_ns - case.loading.wait_ns, 0.01 * loop.regular_step_ns)
    workers = math.ceil(case.loading.batch_ns * loop.fetches / own_ns) if own_ns > 0 else 1
    return Choice(max(1, min(workers, most)), "so many make the batches of a step in the time of a step")


def _choose_prefetch(model: LoopModel) -> int:
    steps = {depth: simulate(replace(model, prefetch=max(depth, model.prefetch))).step_ns for depth in _PREFETCHED}
    return next(depth for depth in _PREFETCHED if steps[depth] <= ALIKE_RATIO * min(steps.values()))


def _find_fewer(case: Case, workers: int) -> int | None:
    """Return a number of workers, at most the cores, whose simulated step is as short as with the present `workers`.

    None if there is no such number, if the cores suffice for `workers`, if workers mostly wait, or if the simulation is
    not trusted.
    """
    loop, most = case.loading.loop, max(1, int(case.host.cores))
    if workers <= case.host.cores or not loop.trusted or case.loading.cpu_need <= CAPPED_NEED:
        return None
    fewer = min(find_workers(loop.model, most=most), most)
    is_as_short = simulate(replace(loop.model, workers=fewer)).step_ns <= ALIKE_RATIO * simulate(loop.model).step_ns
    return fewer if is_as_short else None


def _find_spared_ns(case: Case) -> float:
    """Return the time in ns that a step waits for a processor because workers hold it; 0 if unknown.

    This is the smaller of two times: the time that the recorded thread waits for a processor in a step, and the time
    that a step without workers would save.
    """
    load, loop = case.host.load, case.loading.loop
    if load is None or not load.queued_frac or not loop.trusted or not loop.model.workers:
        return 0.0
    shorter_ns = loop.own_ns - predict_without_loading(loop, loop.model) + loop.model.extra_ns
    return max(0.0, min(load.queued_frac * loop.regular_step_ns, shorter_ns))


class _Asked(dict[K, V]):
    """Values by key, each measured at its first use and kept. Naming functions is slow, and few rules need names."""

    def __init__(self, measure: Callable[[K], V]) -> None:
        self._measure = measure

    def __missing__(self, key: K) -> V:
        self[key] = self._measure(key)
        return self[key]


def name_samples(stacks: Stacks, loader: int | None, keeps_tracebacks: bool) -> Sampled:
    """Return the functions that the samples show, by phase and by stage of the loader with the number `loader`."""
    through, whole = stacks.count_through("forward", *_KEEPS_TRACEBACK) if keeps_tracebacks else (0, 0)
    tracebacks = SampledShare(whole, through / whole, *bound_share(through, whole)) if whole >= LEAST_SAMPLES else None
    return Sampled(
        phases=_Asked(lambda names: stacks.phase(*names)),
        stages=_Asked(lambda names: stacks.stage(loader, *names)),
        tracebacks=tracebacks,
    )
