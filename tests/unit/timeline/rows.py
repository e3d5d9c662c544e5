"""Timelines made of given slices, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collector.format import parts
from collector.format.run import RankRun
from collector.format.schema import layout
from collector.notebook.run import Run, open_run
from profiler_server.timeline.cache import TimelineCache
from profiler_server.timeline.store import Timeline
from tests.support.runs import RunPlan, build_run


def make_slice(number: int, start: int, length: int, **more: Any) -> dict[str, Any]:
    """Return a row of `slices` on track 1; anything can be overridden."""
    row = {"id": number, "track": 1, "depth": 0, "start_ns": start, "duration_ns": length}
    return {**row, "name": f"op {number % 7}", "category": "operator", **more}


def build_slices_run(path: Path, rows: Sequence[Mapping[str, Any]], plan: RunPlan | None = None) -> Run:
    """Build a run whose table `slices` has these rows, in this order."""
    build_run(path, plan or RunPlan(steps=3))
    folder = layout.rank_path(path, 0)
    parts.write_table(parts.build_table_from_rows("slices", rows), layout.table_file(folder, "slices"), 64)
    tracks = [
        {
            "track": t,
            "kind": "thread" if t < 8 else "stream",
            "name": f"track {t}",
            "process": "python",
            "order": t,
            "unit": "",
        }
        for t in sorted({row["track"] for row in rows})
    ]
    parts.write_table(parts.build_table_from_rows("tracks", tracks), layout.table_file(folder, "tracks"))
    return open_run(path)


def open_timeline(rank: RankRun) -> Timeline:
    return TimelineCache().open(rank)
