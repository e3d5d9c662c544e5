"""The gate: whether a list of runs is slower than another list, by more than runs of the same program differ."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from collector.format.intervals import Floats
from collector.format.phases import PHASES
from profiler_server.analysis.compare.comparison import LineShare
from profiler_server.analysis.compare.run_statistics import (
    ALPHA,
    WORTH_PAIRS,
    Estimate,
    PartChange,
    bootstrap_medians,
    compare_lists,
    compare_with_known_scatter,
    count_pairs,
    find_changed_parts,
    has_interval,
    judge_pairs,
)
from profiler_server.analysis.compare.run_times import (
    RunTimes,
    are_interleaved,
    find_order_cautions,
    find_unlike,
    gather_parts,
    name_load,
    order_runs,
)
from profiler_server.diagnosis.limits.compare import (
    BUSY_FRAC,
    CAUSE_FRAC,
    COMPARED_STEPS,
    LEAST_LIKE,
    LEAST_RUNS,
)
from profiler_server.format import clean_name, format_change, format_duration, format_number_of, format_share

Kind = Literal["slower", "same", "faster", "unknown"]
DETECTABLE = 0.05
"""The limit if the user sets none: runs are the same only if a slowdown above this limit is excluded."""
MOST_NAMED = 3
"""Busy runs above which one sentence covers all of them."""
_ROUNDING = 0.0005
"""Relative change below which a percentage reads as 0.0 %."""
_PHASES = frozenset(phase.label for phase in PHASES)
_STATES = {"crashed": "crashed", "recording": "is still being recorded"}


@dataclass(frozen=True)
class PairChange:
    """The median steps of two runs that were recorded as a pair, whose names are `base` and `new`. `change` is the
    slowdown of the new run, as a share of the base's median step; negative if it is faster.
    """

    base: str
    new: str
    base_ns: float
    new_ns: float
    change: float


@dataclass(frozen=True)
class Verdict:
    """The result of the gate. `reason` is a sentence with the figures; `estimate` is None if nothing can be estimated.

    `base` and `new` are numbers of runs. `max_slowdown` is the limit that the user set, 0 for none. `parts` are phases
    and kernels that changed by more than chance. `mean_change_ns` is the change of the mean step. If no entry of
    `parts` makes up a quarter of that change, `leading` is the phase that changed most, else None.

    `rank` names the judged rank and the number of ranks, such as `rank 0 of 8`; "" with one rank. `compared_ns` is the
    time of all compared steps. `pairs` are in order of recording, empty for runs that were not recorded in pairs.
    `lines` are the lines of the user whose time changed, of a step that became slower or faster.
    """

    kind: Kind
    reason: str
    base: int
    new: int
    estimate: Estimate | None = None
    parts: tuple[PartChange, ...] = ()
    cautions: tuple[str, ...] = ()
    max_slowdown: float = 0.0
    leading: PartChange | None = None
    pairs: tuple[PairChange, ...] = ()
    mean_change_ns: float = 0.0
    rank: str = ""
    compared_ns: float = 0.0
    lines: tuple[LineShare, ...] = ()


def judge(
    base: Sequence[RunTimes], new: Sequence[RunTimes], max_slowdown: float = 0.0, like: Sequence[RunTimes] = ()
) -> Verdict:
    """Return the verdict on `new` against `base`. `like` are other runs of the same program, used if each side has one
    run.

    The verdict is slower if the slowdown exceeds chance at 5 % and also exceeds `max_slowdown`. It is undecided with
    too few runs, if the scatter of the runs could hide a slowdown above the limit, or if other programs may have made
    the difference.
    """
    verdict = Verdict("unknown", "", len(base), len(new), cautions=find_cautions(base, new), max_slowdown=max_slowdown)
    compared_ns = math.fsum(float(run.steps_ns.sum()) for run in (*base, *new))
    verdict = replace(verdict, rank=_name_rank((*base, *new)), compared_ns=compared_ns)
    if reason := _find_unfit((*base, *new)):
        return replace(verdict, reason=reason)
    if min(len(base), len(new)) >= LEAST_RUNS:
        estimate: Estimate | None = _estimate(base, new, _medians, judge_pairs)
    else:
        estimate = _estimate_few(base, new, like)
    if estimate is None:
        return replace(verdict, reason=_explain_few(base, new))
    kind = _decide(estimate, max_slowdown)
    base_parts, new_parts = gather_parts(base, new)
    parts = find_changed_parts(base_parts, new_parts)
    mean_change_ns = float(_means(new).mean() - _means(base).mean())
    verdict = replace(verdict, kind=kind, estimate=estimate, parts=parts, mean_change_ns=mean_change_ns)
    verdict = replace(verdict, leading=None if _choose_parts(verdict) else _find_leading(base, new))
    verdict = replace(verdict, pairs=_list_pairs(base, new))
    load = _explain_load(kind, base, new)
    reason = _explain(verdict, estimate, base[0].noun)
    return replace(verdict, kind="unknown" if load else kind, reason=f"{reason}{load}")


def add_lines(verdict: Verdict, lines: Sequence[LineShare]) -> Verdict:
    """Return the verdict with the lines that changed. Its reason names the two that explain most of the change."""
    verdict = replace(verdict, lines=tuple(lines))
    parts = {name_line(each): PartChange(name_line(each), each.part.change_ns, 1.0) for each in lines}
    causes = _choose_causes(verdict, tuple(parts.values()))
    if not causes:
        return verdict
    more = "longer" if verdict.mean_change_ns > 0 else "shorter"
    whole = f"The mean step is {format_duration(abs(verdict.mean_change_ns))} {more}"
    named = " and ".join(_name_part(part) for part in causes[:2])
    return replace(verdict, reason=f"{verdict.reason} {whole}; of your lines, {named}.")


def name_line(line: LineShare) -> str:
    """Return the name of a line and its place in the new runs, or in the base if it is gone there."""
    return f"{clean_name(line.part.name, 40)} ({clean_name(line.b_place or line.a_place, 40)})"


def _find_unfit(runs: Sequence[RunTimes]) -> str:
    short = [run.name for run in runs if len(run.steps_ns) < COMPARED_STEPS]
    if short:
        return f"{short[0]} has fewer than {COMPARED_STEPS} steps to take a median of."
    empty = [run.name for run in runs if not np.median(run.steps_ns) > 0]
    return f"The steps of {empty[0]} have no length." if empty else ""


def find_like(runs: Sequence[RunTimes], base: RunTimes) -> tuple[RunTimes, ...]:
    """Return the runs with the same script, host and number of ranks as `base`; empty if the script of `base` is
    unknown.
    """
    key = (base.script, base.host, base.world_size)
    return tuple(run for run in runs if base.script and (run.script, run.host, run.world_size) == key)


def _decide(estimate: Estimate, max_slowdown: float) -> Kind:
    if estimate.p < ALPHA and estimate.change > max(max_slowdown, _ROUNDING):
        return "slower"
    if estimate.p > 1.0 - ALPHA / 2 and estimate.change < -_ROUNDING:
        return "faster"
    return "same" if estimate.most <= (max_slowdown or DETECTABLE) else "unknown"


def _estimate(
    base: Sequence[RunTimes],
    new: Sequence[RunTimes],
    measure: Callable[[Sequence[RunTimes]], Floats],
    of_pairs: Callable[[Floats, Floats], Estimate],
) -> Estimate:
    if are_interleaved(base, new):
        return of_pairs(measure(order_runs(base)), measure(order_runs(new)))
    return compare_lists(measure(base), measure(new))


def _list_pairs(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> tuple[PairChange, ...]:
    if not are_interleaved(base, new):
        return ()
    pairs = [(a, b, *_medians((a, b)).tolist()) for a, b in zip(order_runs(base), order_runs(new), strict=True)]
    return tuple(PairChange(a.name, b.name, a_ns, b_ns, b_ns / a_ns - 1.0) for a, b, a_ns, b_ns in pairs)


def _estimate_few(base: Sequence[RunTimes], new: Sequence[RunTimes], like: Sequence[RunTimes]) -> Estimate | None:
    if len(base) != 1 or len(new) != 1 or len(like) < LEAST_LIKE:
        return None
    return compare_with_known_scatter(_medians(base)[0], _medians(new)[0], _medians(like))


def _medians(runs: Sequence[RunTimes]) -> Floats:
    return np.array([np.median(run.steps_ns) for run in runs])


def _means(runs: Sequence[RunTimes]) -> Floats:
    return np.array([np.mean(run.steps_ns) for run in runs])


def _name_rank(runs: Sequence[RunTimes]) -> str:
    """Return the judged rank, such as `rank 0 of 8`; "" for runs of one rank or with differing ranks."""
    places = {(run.rank, run.world_size) for run in runs}
    rank, most = places.pop() if len(places) == 1 else (0, 1)
    return f"rank {rank} of {most:,}" if most > 1 else ""


def _find_leading(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> PartChange | None:
    """Return the phase that changed most, in the direction of the sum of all phases; None if under a quarter of that
    sum.
    """
    names = sorted({name for run in (*base, *new) for name in run.parts_ns})
    changes = {name: _average(new, name) - _average(base, name) for name in names}
    whole = sum(changes.values())
    name = max(names, key=lambda name: changes[name] * whole, default="")
    if not name or changes[name] * whole <= CAUSE_FRAC * whole**2:
        return None
    return PartChange(name, changes[name], 1.0)


def _average(runs: Sequence[RunTimes], phase: str) -> float:
    return float(np.mean([run.parts_ns.get(phase, 0.0) for run in runs]))


def _explain_few(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> str:
    if len(base) == len(new) == 1:
        change = _medians(new)[0] / _medians(base)[0] - 1.0
        within = ""
        if all(has_interval(run.steps_ns) for run in (*base, *new)):
            low, high = bootstrap_medians(base[0].steps_ns, new[0].steps_ns)
            within = f" ({format_change(low)} to {format_change(high)})"
        return (
            f"Within this pair the median {base[0].noun} differs by {format_change(change)}{within}, but how much "
            f"two runs of the same program differ here is not known. Record at least {LEAST_RUNS} runs of each side, "
            f"interleaved, or keep {LEAST_LIKE} runs of the same script below one folder."
        )
    return (
        f"{format_number_of(len(new), 'run')} against {len(base)} of the base: at least {LEAST_RUNS} of each side are needed "
        "to tell how much runs of the same program differ."
    )


def _explain(verdict: Verdict, estimate: Estimate, noun: str) -> str:
    # The ends are those of the one-sided tests that decide: an interval of other ends could contradict the verdict.
    ends = f"{format_change(estimate.least)} to {format_change(estimate.most)}, each end with 95 % certainty"
    spread = f"{format_change(estimate.change)} ({ends})"
    floor = (
        f" Noise floor: runs of one program differ by {format_share(estimate.scatter)} here. The smallest slowdown that "
        f"so many pairs find 4 times in 5: {format_share(estimate.detectable)}."
    )
    if verdict.kind == "slower":
        above = f", above the limit of {format_share(verdict.max_slowdown)}" if verdict.max_slowdown else ""
        slower = f"{format_share(estimate.change)} slower"
        if estimate.change >= 1.0:  # a large share is hard to picture
            slower = f"{1.0 + estimate.change:.1f} times as long"
        return f"The median {noun} is {slower} ({ends}){above}{_name_parts(verdict)}.{floor}"
    if verdict.kind == "faster":
        faster = f"{format_share(-estimate.change)} faster"
        return f"The median {noun} is {faster} ({ends}){_name_parts(verdict)}.{floor}"
    limit = f" The limit is {format_share(verdict.max_slowdown)}." if verdict.max_slowdown else ""
    if verdict.kind == "same":
        allowed = f"of more than {format_share(verdict.max_slowdown or DETECTABLE)}"
        return f"No slowdown {allowed}: the median {noun} changed by {spread}.{floor}"
    unknown = f"It is not known whether the median {noun} is slower: it changed by {spread}."
    return f"{unknown}{limit}{floor} {_advise_pairs(verdict, estimate)}"


def _advise_pairs(verdict: Verdict, estimate: Estimate) -> str:
    """Return a sentence on how many pairs to record, so that the gate can detect a slowdown of `max_slowdown`.

    If the recorded pairs suffice for this, the change is close to `max_slowdown`. The advice is then the number of
    pairs that can separate the change from `max_slowdown`.
    """
    limit = verdict.max_slowdown or DETECTABLE
    is_close = estimate.detectable <= limit and 0.0 < estimate.change < limit
    told = (1.0 + limit) / (1.0 + estimate.change) - 1.0 if is_close else limit
    pairs = count_pairs(estimate.scatter, told)
    what = f"{format_share(told)}, by which the change is below the limit" if is_close else format_share(limit)
    if pairs is None:
        return f"Even {WORTH_PAIRS} pairs would hardly tell {what}: record on a quieter machine."
    pairs = max(pairs, min(verdict.base, verdict.new) + 1)
    return f"Record more, or on a quieter machine: about {pairs} pairs would tell {what}."


def _choose_parts(verdict: Verdict) -> list[PartChange]:
    return _choose_causes(verdict, verdict.parts)


def _choose_causes(verdict: Verdict, parts: Sequence[PartChange]) -> list[PartChange]:
    """Return the parts that changed in the direction of the verdict and are large enough to be named."""
    if verdict.kind not in ("slower", "faster"):
        return []
    sign = 1.0 if verdict.kind == "slower" else -1.0
    least_ns = max(sign * verdict.mean_change_ns, 0.0) * CAUSE_FRAC
    return [part for part in parts if sign * part.change_ns > least_ns]


def _name_parts(verdict: Verdict) -> str:
    """Return the changed phases and kernels as text that is added to the change of the median; "" for none.

    Their times are per mean step, because parts of a median do not add up.
    """
    named = _choose_parts(verdict)[:2]
    if named:
        return f"; in the mean step {' and '.join(_name_part(part) for part in named)}"
    leading = verdict.leading
    if leading is None or (leading.change_ns > 0) != (verdict.kind == "slower"):
        return ""
    return f"; most likely it is {leading.name.lower()}: in the mean step {_name_part(leading)}, not certain by itself"


def _name_part(part: PartChange) -> str:
    word = "longer" if part.change_ns > 0 else "shorter"
    name = part.name.lower() if part.name in _PHASES else part.name
    return f"{name} is {format_duration(abs(part.change_ns))} {word}"


def _explain_load(kind: Kind, base: Sequence[RunTimes], new: Sequence[RunTimes]) -> str:
    """Return a further sentence if other programs loaded the host on one side more than on the other; else "".

    The difference must be so large that it may explain or hide the difference of the sides.
    """
    cores = [run.cores for run in (*base, *new) if run.cores]
    loads = [[run.others_cores for run in runs if run.others_cores is not None] for runs in (base, new)]
    if not cores or not all(loads):
        return ""
    before, after = (float(np.mean(load)) for load in loads)
    more = after - before if kind == "slower" else before - after
    if kind == "unknown" or more <= BUSY_FRAC * min(cores):
        return ""
    what = "may be the cause" if kind == "slower" else "may hide a slowdown"
    return (
        f" Not judged, as the load of other programs {what}: they used {after:.1f} of {min(cores):g} cores during these "
        f"runs and {before:.1f} during those of the base. Record both in pairs, on a quiet host."
    )


def find_cautions(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> tuple[str, ...]:
    """Return reasons for caution with the comparison.

    They are: busy hosts, other work, crashed or unfinished runs, runs given twice and the order of the runs.
    """
    runs = (*base, *new)
    found = _name_busy(runs) + find_unlike(runs)
    found += [f"{run.name} {_STATES[run.state]}" for run in runs if run.state in _STATES]
    twice = [name for name, count in Counter((run.name, run.started_unix_ns) for run in runs).items() if count > 1]
    found += [f"{name} was given twice" for name, _ in twice]
    return (*found, *find_order_cautions(base, new))


def _name_busy(runs: Sequence[RunTimes]) -> list[str]:
    """Return sentences on runs whose host was busy with other programs. For many runs, it is one sentence with the
    maximum.
    """
    busy = [run for run in runs if name_load(run.name, run.others_cores, run.cores)]
    if len(busy) <= MOST_NAMED:
        return [caution for run in busy for caution in name_load(run.name, run.others_cores, run.cores)]
    most = max(busy, key=lambda run: run.others_cores or 0.0)
    names = ", ".join(run.name for run in busy[: 4 * MOST_NAMED])
    more = f" and {len(busy) - 4 * MOST_NAMED} more" if len(busy) > 4 * MOST_NAMED else ""
    which = f"{len(busy)} of the {len(runs)} runs were recorded: {names}{more}"
    which = f"all {len(runs)} runs were recorded" if len(busy) == len(runs) else which
    return [f"other programs used up to {most.others_cores:.1f} of {most.cores:g} cores while {which}"]
