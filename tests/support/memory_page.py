"""The Memory page of a run."""

from __future__ import annotations

from pathlib import Path

from collector.format.lens import parse_range
from collector.format.run import open_run
from profiler_server.page import PageRequest
from profiler_server.pages.memory import MemoryPage, build


def show(path: Path, steps: str = "", **query: str) -> MemoryPage:
    return build(PageRequest(open_run(path), path.name, 0, (0,), query, parse_range(steps)))
