"""The gate: is a list of runs slower than another by more than identical programs differ?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from collector.format.intervals import Floats
from profiler_server.analysis.compare.run_statistics import (
    ALPHA,
    Estimate,
    PartChange,
    bootstrap_medians,
    compare_lists,
    compare_pairs,
    compare_with_known_scatter,
    find_changed_parts,
)
from profiler_server.analysis.compare.run_times import RunTimes, name_load
from profiler_server.format import format_change, format_duration, format_number_of, format_share

Kind = Literal["slower", "same", "faster", "unknown"]
LEAST_RUNS = 3
"""Fewer runs on a side say nothing about the scatter from run to run."""
LEAST_LIKE = 5
"""Earlier runs of the program that are needed to know the scatter for a single pair."""
LEAST_STEPS = 10
DETECTABLE = 0.05
"""Where no limit is given, runs that could hide a slowdown of this size do not pass as equal."""


@dataclass(frozen=True)
class Verdict:
    """What the gate found. `reason` is a sentence with the figures; `estimate` is None where there is none.

    `parts` are phases and kernels that changed by more than chance.
    """

    kind: Kind
    reason: str
    base: int
    new: int
    estimate: Estimate | None = None
    parts: tuple[PartChange, ...] = ()
    cautions: tuple[str, ...] = ()
    max_slowdown: float = 0.0


def judge(
    base: Sequence[RunTimes], new: Sequence[RunTimes], max_slowdown: float = 0.0, like: Sequence[RunTimes] = ()
) -> Verdict:
    """Judge `new` against `base`; `like` are other runs of the same program, used where there is one pair only.

    It is slower if the slowdown is more than chance at 5 % and more than `max_slowdown`. It is undecided where there
    are too few runs, or where a slowdown above the limit could hide in their scatter.
    """
    cautions = _find_cautions((*base, *new))
    short = [run.name for run in (*base, *new) if len(run.steps_ns) < LEAST_STEPS]
    if short:
        reason = f"{short[0]} has fewer than {LEAST_STEPS} steps to take a median of."
        return Verdict("unknown", reason, len(base), len(new), cautions=cautions, max_slowdown=max_slowdown)
    if min(len(base), len(new)) < LEAST_RUNS:
        estimate = _estimate_few(base, new, like)
        if estimate is None:
            reason = _explain_few(base, new)
            return Verdict("unknown", reason, len(base), len(new), cautions=cautions, max_slowdown=max_slowdown)
    else:
        estimate = _estimate(base, new)
    parts = find_changed_parts([run.parts_ns for run in base], [run.parts_ns for run in new])
    kind = _decide(estimate, max_slowdown)
    reason = _explain(kind, estimate, parts, max_slowdown, base[0].noun)
    return Verdict(kind, reason, len(base), len(new), estimate, parts, cautions, max_slowdown)


def find_like(runs: Sequence[RunTimes], base: RunTimes) -> tuple[RunTimes, ...]:
    """Return the runs of the same script on the same host with as many ranks."""
    key = (base.script, base.host, base.world_size)
    return tuple(run for run in runs if base.script and (run.script, run.host, run.world_size) == key)


def _decide(estimate: Estimate, max_slowdown: float) -> Kind:
    if estimate.p < ALPHA and estimate.change > max_slowdown:
        return "slower"
    if estimate.p > 1.0 - ALPHA / 2:
        return "faster"
    limit = max_slowdown or DETECTABLE
    return "same" if estimate.high <= limit or estimate.detectable <= limit else "unknown"


def _estimate(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> Estimate:
    if are_interleaved(base, new):
        ordered = [sorted(runs, key=lambda run: run.started_unix_ns) for runs in (base, new)]
        return compare_pairs(_medians(ordered[0]), _medians(ordered[1]))
    return compare_lists(_medians(base), _medians(new))


def are_interleaved(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> bool:
    """Say whether the runs were recorded in pairs, one of each side: what drifts then is the same for both."""
    if len(base) != len(new):
        return False
    order = sorted([(run.started_unix_ns, 0) for run in base] + [(run.started_unix_ns, 1) for run in new])
    sides = [side for _, side in order]
    return all(set(sides[at : at + 2]) == {0, 1} for at in range(0, len(sides), 2))


def _estimate_few(base: Sequence[RunTimes], new: Sequence[RunTimes], like: Sequence[RunTimes]) -> Estimate | None:
    if len(base) != 1 or len(new) != 1 or len(like) < LEAST_LIKE:
        return None
    return compare_with_known_scatter(_medians(base)[0], _medians(new)[0], _medians(like))


def _medians(runs: Sequence[RunTimes]) -> Floats:
    return np.array([np.median(run.steps_ns) for run in runs])


def _explain_few(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> str:
    if len(base) == len(new) == 1:
        change = _medians(new)[0] / _medians(base)[0] - 1.0
        low, high = bootstrap_medians(base[0].steps_ns, new[0].steps_ns)
        return (
            f"Within this pair the median {base[0].noun} differs by {format_change(change)} ({format_change(low)} to {format_change(high)}), but how much "
            f"two runs of the same program differ here is not known. Record at least {LEAST_RUNS} runs of each side, "
            f"interleaved, or keep {LEAST_LIKE} runs of the same script below one folder."
        )
    return (
        f"{format_number_of(len(base), 'run')} against {len(new)} are too few: at least {LEAST_RUNS} of each side tell how "
        "much runs of the same program differ."
    )


def _explain(kind: Kind, estimate: Estimate, parts: Sequence[PartChange], max_slowdown: float, noun: str) -> str:
    spread = f"{format_change(estimate.change)} ({format_change(estimate.low)} to {format_change(estimate.high)})"
    seen = f"a slowdown of {format_share(estimate.detectable)} would be found four times in five"
    if kind == "slower":
        return f"The median {noun} is slower by {spread}{_name_parts(parts, slower=True)}."
    if kind == "faster":
        return f"The median {noun} is faster: {spread}{_name_parts(parts, slower=False)}."
    limit = f" The limit is {format_share(max_slowdown)}." if max_slowdown else ""
    if kind == "same":
        return f"No slowdown: {spread}; {seen}.{limit}"
    return f"Undecided: {spread}; only {seen}.{limit} Record more pairs, or on a quieter machine."


def _name_parts(parts: Sequence[PartChange], *, slower: bool) -> str:
    named = [part for part in parts if (part.change_ns > 0) == slower][:2]
    if not named:
        return ""
    return ", of it " + " and ".join(f"{part.name.lower()} {format_duration(abs(part.change_ns))}" for part in named)


def _find_cautions(runs: Sequence[RunTimes]) -> tuple[str, ...]:
    """Name what makes the runs unlike: busy hosts, other scripts or hosts, and a run that is given twice."""
    found = [caution for run in runs for caution in name_load(run.name, run.others_cores, run.cores)]
    for what, values in (("script", {run.script for run in runs}), ("host", {run.host for run in runs})):
        if len(values - {""}) > 1:
            found.append(f"the runs are of different {what}s: {', '.join(sorted(values - {''})[:3])}")
    twice = [name for name, count in Counter((run.name, run.started_unix_ns) for run in runs).items() if count > 1]
    return (*found, *(f"{name} was given twice" for name, _ in twice))
