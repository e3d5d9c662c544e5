"""The report of a run: everything that the pages say, as one object for programs and as text for a terminal."""

from __future__ import annotations

from typing import Any

from collector.run import Run


def build_report(run: Run) -> dict[str, Any]:
    """Return the object that `report --json` prints; absent is None."""
    raise NotImplementedError


def render_text(report: dict[str, Any]) -> str:
    """Return the report as text for a terminal, ending in a newline."""
    raise NotImplementedError
