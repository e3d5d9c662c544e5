"""The Step trace page of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from collector.format.parts import build_table_from_rows, write_table
from collector.format.run import open_run
from collector.format.schema import layout
from profiler_server.page import PageRequest
from profiler_server.pages.steps import Trace, build
from tests.support.runs import RunPlan, build_run, build_steps

Change = Callable[[list[dict[str, Any]]], None]


def show(path: Path, **query: str) -> Trace:
    shown = build(PageRequest(open_run(path), path.name, 0, (0,), query))
    assert shown.notice is None
    assert shown.trace is not None
    return shown.trace


def build_changed(path: Path, plan: RunPlan, change: Change) -> Path:
    build_run(path, plan)
    rows = build_steps(plan)
    change(rows)
    write_table(build_table_from_rows("steps", rows), layout.table_file(layout.rank_path(path, 0), "steps"))
    return path
