"""The bar of the time to the first step. Overall shows it where this time is worth seeing."""

from __future__ import annotations

from dataclasses import dataclass

from collector.format.run import RankRun
from profiler_server.analysis.steps.start_up import measure_start_up
from profiler_server.diagnosis.start_sentences import is_worth_a_bar, say_basis, say_since
from profiler_server.facts.start_up import CAUSES, Cause, StartPart, StartUp
from profiler_server.figures.strips import Bar, percent
from profiler_server.format import fill_in, format_duration, format_shares
from profiler_server.page import build_part

_COLORS: dict[Cause, str] = {
    "before": "host",
    "imports": "host",
    "recording": "host",
    "data": "data",
    "weights": "optimizer",
    "setup": "communication",
    "compile": "overlap",
    "first_batch": "data",
    "script": "copy",
    "unseen": "idle",
    "step": "compute",
}


@dataclass(frozen=True)
class StartRow:
    """One part. `line` is the user's line that takes most of it, as place and text; "" if unknown."""

    label: str
    meaning: str
    color: str
    duration: str
    share: str
    line: str


@dataclass(frozen=True)
class StartCard:
    """The time to the first step as a bar of its parts. `sentence` says from when on it counts and how sure it is."""

    noun: str
    total: str
    bars: tuple[Bar, ...]
    rows: tuple[StartRow, ...]
    sentence: str


def read_start_card(rank: RankRun) -> StartCard | None:
    """Return the card; None if the time is short, unknown, or cannot be read."""
    start, _ = build_part("The time to the first step cannot be read", lambda: measure_start_up(rank))
    return None if start is None or not is_worth_a_bar(start) else _build_card(start)


def _build_card(start: StartUp) -> StartCard:
    shares = format_shares([part.duration_ns / start.total_ns for part in start.parts])
    since = say_since(start)
    return StartCard(
        noun=start.noun,
        total=format_duration(start.total_ns),
        bars=tuple(_lay_out(start)),
        rows=tuple(_build_row(part, share) for part, share in zip(start.parts, shares, strict=True)),
        sentence=f"{since[:1].upper()}{since[1:]}. {say_basis(start)}",
    )


def _lay_out(start: StartUp) -> list[Bar]:
    bars, begin = [], 0
    for part in start.parts:
        took = part.duration_ns
        bounds = percent(begin, start.total_ns), percent(took, start.total_ns)
        bars.append(Bar(*bounds, _COLORS[part.cause], "", f"{fill_in(part.label)}: {format_duration(took)}"))
        begin += took
    return bars


def _build_row(part: StartPart, share: str) -> StartRow:
    label, meaning = map(fill_in, CAUSES[part.cause])
    line = f"{part.place}, {part.line}" if part.line else part.place
    return StartRow(label, meaning, _COLORS[part.cause], format_duration(part.duration_ns), share, line)
