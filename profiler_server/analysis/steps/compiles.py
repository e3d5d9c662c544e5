"""What torch.compile did during a rank's steps."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa

from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from profiler_server.facts.steps import CompileEvents

_COLUMNS = ("kind", "duration_ns", "name", "reason")
_MOST_REASON = 200


def summarize_compiles(rank: RankRun) -> dict[str, CompileEvents]:
    """Sum compilations by kind: compile, recompile, graph_break. Empty where the table cannot be read."""
    try:
        rows = rank.table("compiles", _COLUMNS)
    except RunError:
        return {}
    kinds = rows["kind"].cast(pa.string()).to_pylist()
    events = list(
        zip(kinds, *(rows[name].to_pylist() for name in _COLUMNS[1:]), strict=True),
    )
    return {kind: _sum_events([event[1:] for event in events if event[0] == kind]) for kind in set(kinds)}


def _sum_events(events: list[tuple[int, str, str | None]]) -> CompileEvents:
    names = Counter(name for _, name, _ in events)
    most = names.most_common(1)[0][0]
    reasons = Counter(_take_line(reason) for _, name, reason in events if name == most)
    total = sum(duration for duration, _, _ in events)
    return CompileEvents(len(events), total, len(names), most, reasons.most_common(1)[0][0])


def _take_line(reason: str | None) -> str:
    lines = (reason or "").strip().splitlines()
    return lines[0].strip()[:_MOST_REASON] if lines else ""
