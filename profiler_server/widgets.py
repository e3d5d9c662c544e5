"""Shared elements of pages: figures, parts of a time, choices, small tables. The templates `macros.html` and
`strip.html` draw these elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from profiler_server.format import format_duration, format_shares


@dataclass(frozen=True)
class Stat:
    """A named figure, with a note on its meaning. `page` is the slug of the page that explains the figure, None for no
    page. `pending` means that the figure is still being computed.
    """

    label: str
    value: str
    note: str = ""
    page: str | None = None
    pending: bool = False


@dataclass(frozen=True)
class Part:
    """One part of a time. `color` names a category of colours. `share_frac` is the filled part of the bar.

    `carrier` is the step that holds most of this time, None if no single step does.
    """

    label: str
    color: str
    duration: str
    share: str
    share_frac: float
    meaning: str = ""
    carrier: int | None = None


@dataclass(frozen=True)
class Link:
    """A choice on a page. `query` is the complete URL query that it opens. `current` marks the choice that is open."""

    label: str
    query: Mapping[str, str]
    current: bool = False


@dataclass(frozen=True)
class TextTable:
    """A table of formatted text. `left_out` is the number of rows that are not shown.

    `bars` has the percentage of a bar for each row, `spans_ns` begin and end of each row on the timeline. Each of the
    two is empty if the table has none."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    bars: tuple[float, ...] = ()
    spans_ns: tuple[tuple[int, int], ...] = ()
    left_out: int = 0


def build_parts(words: Iterable[tuple[str, str, str]], values_ns: Iterable[float], whole_ns: float) -> tuple[Part, ...]:
    """Return the parts of a whole. `words` has label, colour and meaning of each part, `values_ns` its time."""
    values = list(values_ns)
    fractions = [value / whole_ns if whole_ns else 0.0 for value in values]
    return tuple(
        Part(label, color, format_duration(value), share, fraction, meaning)
        for (label, color, meaning), value, share, fraction in zip(
            words, values, format_shares(fractions), fractions, strict=True
        )
    )
