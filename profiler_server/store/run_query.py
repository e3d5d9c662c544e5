"""Filtering, sorting and paging of the list of runs, for its page and for the HTTP API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from collector.format.schema.errors import OptionError
from profiler_server.store.headline import ListState, RunEntry

SortKey = Literal["when", "name", "state", "ranks", "steps", "step", "delta", "wait"]
PAGE_SIZE = 25
PAGE_SIZE_LIMIT = 500

_VALUES: dict[SortKey, Callable[[RunEntry], Any]] = {
    "when": lambda run: run.manifest.created_unix_ns,
    "name": lambda run: run.name.casefold(),
    "state": lambda run: run.shown_state,
    "ranks": lambda run: len(run.headline.ranks),
    "steps": lambda run: run.headline.steps,
    "step": lambda run: run.headline.step_p50_ns,
    "delta": lambda run: run.delta_frac,
    "wait": lambda run: run.headline.data_wait_frac,
}
_ALWAYS_KNOWN = ("when", "name")


@dataclass(frozen=True)
class RunQuery:
    """A query on the list of runs. Each word of `q` must occur in a run's id, name, script, host or state, in upper or
    lower case. `sort` is a key, with `-` before it for descending order. `state` is None for any state.
    """

    q: str = ""
    state: ListState | None = None
    sort: str = "-when"
    page: int = 1
    page_size: int = PAGE_SIZE

    def __post_init__(self) -> None:
        if self.sort.removeprefix("-") not in get_args(SortKey):
            there = ", ".join(get_args(SortKey))
            raise OptionError(f"sort={self.sort[:40]!r} is no column; choose {there}, with - before it to fall")
        if self.state is not None and self.state not in get_args(ListState):
            raise OptionError(f"state={self.state[:40]!r} is unknown; choose {', '.join(get_args(ListState))}")
        if not 1 <= self.page_size <= PAGE_SIZE_LIMIT or self.page < 1:
            raise OptionError(f"page starts at 1, and page_size lies between 1 and {PAGE_SIZE_LIMIT}")


@dataclass(frozen=True)
class RunPage:
    """One page of the selected runs. `page` is the nearest page that exists. `total` counts the runs of all pages."""

    runs: tuple[RunEntry, ...]
    page: int
    pages: int
    total: int


def select_runs(runs: tuple[RunEntry, ...], query: RunQuery) -> RunPage:
    """Return the page of runs that a query asks for. Unread runs, and runs without the value to sort by, come last."""
    words = query.q.casefold().split()
    known_state = [run for run in runs if query.state is None or (run.is_read and run.shown_state == query.state)]
    chosen = [run for run in known_state if _matches(run, words)]
    key = query.sort.removeprefix("-")
    value = _VALUES[key]  # type: ignore[index]
    falling = query.sort.startswith("-")
    known = [run for run in chosen if (run.is_read or key in _ALWAYS_KNOWN) and value(run) is not None]
    present = sorted(known, key=value, reverse=falling)
    placed = set(map(id, known))
    ordered = [*present, *(run for run in chosen if id(run) not in placed)]
    pages = max(1, -(-len(ordered) // query.page_size))
    page = min(query.page, pages)
    first = (page - 1) * query.page_size
    return RunPage(tuple(ordered[first : first + query.page_size]), page, pages, len(ordered))


def _matches(run: RunEntry, words: list[str]) -> bool:
    text = " ".join((run.id, run.name, run.manifest.script, run.manifest.host, run.shown_state)).casefold()
    return all(word in text for word in words)
