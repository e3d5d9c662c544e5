"""In which order the runs of two sides were recorded: in pairs, one side after the other, one always first."""

from __future__ import annotations

from collections.abc import Sequence

from profiler_server.analysis.compare.run_times import RunTimes
from profiler_server.diagnosis.limits.compare import LEAST_RUNS


def order_runs(runs: Sequence[RunTimes]) -> list[RunTimes]:
    return sorted(runs, key=lambda run: run.started_unix_ns)


def are_interleaved(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> bool:
    """Say whether the runs were recorded in pairs, one of each side: what drifts then is the same for both."""
    if len(base) != len(new):
        return False
    order = sorted([(run.started_unix_ns, 0) for run in base] + [(run.started_unix_ns, 1) for run in new])
    sides = [side for _, side in order]
    return all(set(sides[at : at + 2]) == {0, 1} for at in range(0, len(sides), 2))


def find_order_cautions(base: Sequence[RunTimes], new: Sequence[RunTimes]) -> tuple[str, ...]:
    """Caution where the order of recording alone can make a difference: a host changes with the hours, and between a
    first run and the one that follows it."""
    if min(len(base), len(new)) < 2:
        return ()
    starts = [[run.started_unix_ns for run in order_runs(runs)] for runs in (base, new)]
    if starts[0][-1] < starts[1][0] or starts[1][-1] < starts[0][0]:
        return (
            "the runs of one side were all recorded before those of the other: what changed on the host meanwhile counts "
            "as a change of the program; profiler-run --against records both in pairs",
        )
    firsts = {first < second for first, second in zip(*starts, strict=False)}
    if len(base) < LEAST_RUNS or len(firsts) > 1 or not are_interleaved(base, new):
        return ()
    side = "base" if firsts == {True} else "new version"
    return (
        f"the {side} came first in every pair: what a second run gains or loses by being the second counts as a change of "
        "the program; profiler-run --against draws the order of each pair by lot",
    )
