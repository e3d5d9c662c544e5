"""The state of the Operators page, all of which is in the URL of the page."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from collector.format.lens import StepRange
from profiler_server.analysis.operators.operator_groups import GROUPS
from profiler_server.analysis.selection import Selection

ChartKind = Literal["pie", "bar"]
PAGE_SIZES = (25, 50, 100)
NAME_LIMIT = 120
"""Longest name that a link contains unshortened."""

DEFAULT_SORT = {"host": "order"}
"""Default sort column, in rising order, of groups that are not sorted by share."""


@dataclass(frozen=True)
class PageState:
    """The state that the URL asks for. `type` and `operator` are keys (`shorten_key`) of opened rows, "" for none.

    `problems` are sentences: each names an invalid argument of the URL, and what is shown instead.
    """

    group: str = "types"
    sort: str = "share_frac"
    descending: bool = True
    search: str = ""
    page: int = 1
    size: int = PAGE_SIZES[0]
    chart: ChartKind = "pie"
    type: str = ""
    operator: str = ""
    steps: StepRange | None = None
    problems: tuple[str, ...] = field(default=(), compare=False)

    @property
    def selection(self) -> Selection:
        return Selection(self.sort, self.descending, self.search, self.page, self.size)

    def query(self, **changes: str | int | bool) -> dict[str, str]:
        """Return the URL query of this state with some fields changed. Default values are left out."""
        target = replace(self, **changes)  # type: ignore[arg-type]
        is_default = (target.sort, target.descending) == default_sort(target.group)
        query = {
            "group": target.group if target.group != "types" else "",
            "sort": "" if is_default else f"{'-' if target.descending else ''}{target.sort}",
            "q": target.search,
            "page": str(target.page) if target.page > 1 else "",
            "size": str(target.size) if target.size != PAGE_SIZES[0] else "",
            "chart": target.chart if target.chart != "pie" else "",
            "type": target.type,
            "operator": target.operator,
            "steps": f"{target.steps.first}-{target.steps.last}" if target.steps else "",
        }
        return {name: value for name, value in query.items() if value}


def default_sort(group: str) -> tuple[str, bool]:
    column = DEFAULT_SORT.get(group)
    return (column, False) if column else ("share_frac", True)


def parse_state(
    query: Mapping[str, str], sortable: Mapping[str, Iterable[str]], steps: StepRange | None = None
) -> PageState:
    """Return the state that the URL query asks for. `steps` is the step filter, which the caller has read from the URL.

    An invalid argument is reported, and replaced by its default. `sortable` maps a group to the columns to sort it by.
    """
    problems: list[str] = []
    group = _choose(query, "group", tuple(GROUPS), "types", problems)
    sort, descending = _parse_sort(query.get("sort", ""), group, tuple(sortable[group]), problems)
    return PageState(
        group=group,
        sort=sort,
        descending=descending,
        search=query.get("q", "")[:200],
        page=_parse_page(query.get("page", ""), problems),
        size=int(_choose(query, "size", tuple(map(str, PAGE_SIZES)), str(PAGE_SIZES[0]), problems)),
        chart="bar" if _choose(query, "chart", ("pie", "bar"), "pie", problems) == "bar" else "pie",
        type=query.get("type", ""),
        operator=query.get("operator", ""),
        steps=steps,
        problems=tuple(problems),
    )


def shorten_key(name: str) -> str:
    """Return the key of a name in a link: the name itself, or a digest if the name is longer than `NAME_LIMIT`."""
    if len(name) <= NAME_LIMIT:
        return name
    return "~" + hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest()


def find_key(key: str, names: Iterable[str | None]) -> str | None:
    """Return the first of `names` whose `shorten_key` is `key`; None if there is no such name, or if `key` is empty."""
    if not key:
        return None
    return next((name for name in names if name is not None and (name == key or shorten_key(name) == key)), None)


def _choose(query: Mapping[str, str], name: str, choices: tuple[str, ...], default: str, problems: list[str]) -> str:
    value = query.get(name, "")
    if value in choices:
        return value
    if value:
        problems.append(f"{name}={_quote(value)} is none of {', '.join(choices)}; {default} is shown.")
    return default


def _parse_sort(text: str, group: str, columns: tuple[str, ...], problems: list[str]) -> tuple[str, bool]:
    column = text.removeprefix("-")
    if column in columns:
        return column, text.startswith("-")
    if text:
        problems.append(f"sort={_quote(text)} is no column of this table; the default order is shown.")
    return default_sort(group)


def _parse_page(text: str, problems: list[str]) -> int:
    if text.isascii() and text.isdigit() and int(text[:9]) > 0:
        return int(text[:9])
    if text:
        problems.append(f"page={_quote(text)} is no number from 1; 1 is shown.")
    return 1


def _quote(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"
