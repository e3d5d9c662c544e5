"""Results as a line, a table in Markdown, and JSON."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Sequence

from tests.endings.comparison import Result, list_ends
from tests.endings.trial import Trial

_HEAD = ("job", "end", "load", "recorded by", "ended bare", "ended recorded", "time to end bare", "recorded", "differs")


def render_line(result: Result) -> str:
    verdict = "; ".join(result.differences) or "as bare"
    return (
        f"{result.cell.name}: bare {_count(result.bare)} in {_time(result.bare)}, "
        f"recorded {_count(result.recorded)} in {_time(result.recorded)}: {verdict}"
    )


def render_table(results: Sequence[Result]) -> str:
    """Return one row for each cell, in Markdown."""
    rows = [_HEAD, tuple("---" for _ in _HEAD), *(_build_row(one) for one in results)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _build_row(result: Result) -> tuple[str, ...]:
    cell = result.cell
    differs = "; ".join(result.differences).replace("|", "\\|").replace("\n", " ") or "no"
    many = f" × {cell.ranks}" if cell.ranks > 1 else ""
    counts = (_count(result.bare), _count(result.recorded), _time(result.bare), _time(result.recorded))
    return (cell.kind.name + many, cell.way.name, cell.load, cell.door, *counts, differs)


def _count(trials: Sequence[Trial]) -> str:
    return f"{len(list_ends(trials))} of {len(trials)}"


def _time(trials: Sequence[Trial]) -> str:
    ends = list_ends(trials)
    if not ends:
        return "–"
    median, worst = statistics.median(ends), max(ends)
    return f"{median:.1f} s" if len(ends) == 1 else f"{median:.1f} s, at most {worst:.1f} s"


def encode_results(results: Sequence[Result]) -> str:
    return json.dumps([_encode(one) for one in results], indent=1)


def _encode(result: Result) -> dict[str, object]:
    cell = result.cell
    return {
        "kind": cell.kind.name,
        "way": cell.way.name,
        "load": cell.load,
        "door": cell.door,
        "ranks": cell.ranks,
        "differences": result.differences,
        "trials": [dataclasses.asdict(one) for one in (*result.bare, *result.recorded)],
    }
