"""The Ranks page of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collector.format.run import Run
from profiler_server.page import PageRequest
from profiler_server.pages.ranks import RanksPage, build
from profiler_server.pages.ranks.asking import ask


def show_ranks(run: Run, query: Mapping[str, str] | None = None, ranks: Sequence[int] | None = None) -> RanksPage:
    """Build the page; `ranks` are those that have a folder, all by default."""
    return build(ask(PageRequest(run, "run", 0, tuple(run.ranks if ranks is None else ranks), query or {})))
