"""Shared elements of pages: figures, components of a time, choices, small tables. `macros.html` and `strip.html` draw
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from profiler_server.format import format_duration, format_shares


@dataclass(frozen=True)
class Stat:
    """A named figure and its meaning. `page` is the page that explains it. With `pending`, the figure is still being
    computed.
    """

    label: str
    value: str
    note: str = ""
    page: str | None = None
    pending: bool = False


@dataclass(frozen=True)
class Part:
    """A component of a time. `color` is a category; `share_frac` is the filled part of the bar.

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
    """A choice on a page. `query` is the complete query of the URL that it opens."""

    label: str
    query: Mapping[str, str]
    current: bool = False


@dataclass(frozen=True)
class TextTable:
    """A table of formatted text. `left_out` is the number of rows that are not shown.

    `bars` holds a percentage per row, `spans_ns` a range on the timeline per row. Each is empty if the table has none.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    bars: tuple[float, ...] = ()
    spans_ns: tuple[tuple[int, int], ...] = ()
    left_out: int = 0


def build_parts(words: Iterable[tuple[str, str, str]], values_ns: Iterable[float], whole_ns: float) -> tuple[Part, ...]:
    """Return the components of a whole. `words` has label, colour and meaning of each, `values_ns` its time."""
    values = list(values_ns)
    fractions = [value / whole_ns if whole_ns else 0.0 for value in values]
    return tuple(
        Part(label, color, format_duration(value), share, fraction, meaning)
        for (label, color, meaning), value, share, fraction in zip(
            words, values, format_shares(fractions), fractions, strict=True
        )
    )
