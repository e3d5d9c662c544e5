"""The Overall page of a run."""

from __future__ import annotations

from pathlib import Path

from collector.format.run import open_run
from profiler_server.page import PageRequest
from profiler_server.pages.overall import OverallPage, build


def show(path: Path) -> OverallPage:
    return build(PageRequest(open_run(path), path.name, 0, (0,), {}))


def stat(page: OverallPage, label: str) -> str:
    assert page.stats.body is not None
    return next(s.value for s in page.stats.body if s.label == label)
