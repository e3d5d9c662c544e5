"""The user's selection: ranks, steps and workers by number, and rows of a long table by search, order and page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.run import RankRun
from collector.format.schema.errors import OptionError
from collector.format.timeline_rows import check_numbers, list_workers
from profiler_server.format import find_runs

Numbers = str | Sequence[int] | None
"""Selected numbers, such as `"0,2-5"` or `[0, 2, 3]`; None for all."""
_MOST_RANGES = 1000


def parse_numbers(value: Numbers, what: str) -> tuple[tuple[int, int], ...] | None:
    """Return selected numbers as inclusive ranges; None for all. Raises OptionError for a text unlike `0,2-5`. `what`
    names the option in the error.
    """
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        return tuple((int(number), int(number)) for number in value)
    ranges = []
    for piece in value.split(","):
        ends = [end.strip() for end in piece.split("-")]
        if len(ends) > 2 or not all(end.isascii() and end.isdigit() and len(end) < 16 for end in ends):
            raise OptionError(f"{what}={value[:80]!r} is not understood at {piece[:20]!r}; write such as 0,2-5")
        ranges.append((int(ends[0]), int(ends[-1])))
    if len(ranges) > _MOST_RANGES or any(first > last for first, last in ranges):
        raise OptionError(f"{what}={value[:80]!r} is not a list of rising ranges such as 0,2-5")
    return tuple(ranges)


def spell_numbers(numbers: Iterable[int]) -> str:
    """Return numbers in the form that `parse_numbers` reads: `0,2-5`."""
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in find_runs(numbers))


def choose_workers(ranks: Sequence[RankRun], workers: Numbers) -> frozenset[int] | None:
    """Return the selected DataLoader workers, or None for all. Raises OptionError for a worker that no rank has."""
    wanted = parse_numbers(workers, "workers")
    if wanted is None:
        return None
    numbers = (number for first, last in wanted for number in range(first, last + 1))
    return frozenset(check_numbers("worker", list_workers(ranks), numbers))


def choose_ranks(there: Sequence[int], ranks: Numbers, most: int) -> tuple[int, ...]:
    """Return the selected ranks of `there`, each once, in the order of selection.

    Raises OptionError for no rank, more than `most` ranks, or unknown ranks.
    """
    wanted = parse_numbers(ranks, "ranks")
    numbers = (number for first, last in wanted or () for number in range(first, last + 1))
    chosen = tuple(dict.fromkeys(check_numbers("rank", there, numbers)))
    if not chosen:
        raise OptionError(f"ranks={ranks!r} names no rank; write such as 0,2-5")
    if len(chosen) > most:
        raise OptionError(f"ranks={str(ranks)[:80]!r} are {len(chosen):,} ranks; at most {most} are shown together")
    return chosen


@dataclass(frozen=True)
class Selection:
    """The rows of a table that the user selects: those that match `search`, sorted by the column `sort`. They are
    shown in pages of `size` rows, and `page` (from 1) is the selected page.
    """

    sort: str
    descending: bool = True
    search: str = ""
    page: int = 1
    size: int = 25


@dataclass(frozen=True)
class SelectedRows:
    """One page (`page` of `pages`, from 1) of the `matched` rows. `loose`: no row has the words of the search, so
    the rows with its letters in order are shown."""

    rows: pa.Table
    matched: int
    page: int
    pages: int
    loose: bool


def select_rows(table: pa.Table, selection: Selection, search_in: tuple[str, ...] = ("name",)) -> SelectedRows:
    """Return one page of the matching rows, sorted over all of them. A page past the end becomes the last page.

    Every word of the search must be in a column of `search_in`, in upper or lower case. If no row matches, a row
    matches if it has the letters of the search in order: `cnvbw` finds `convolution_backward`.
    """
    found, loose = _search(table, selection.search, search_in)
    pages = max(1, -(-found.num_rows // selection.size))
    page = min(max(1, selection.page), pages)
    rows = _sort(found, selection, search_in).slice((page - 1) * selection.size, selection.size)
    return SelectedRows(rows, found.num_rows, page, pages, loose)


def _search(table: pa.Table, search: str, columns: tuple[str, ...]) -> tuple[pa.Table, bool]:
    words = search.split()
    if not words or not table.num_rows:
        return table, False
    found = table.filter(reduce(pc.and_, (_match(table, re.escape(word), columns) for word in words)))
    if found.num_rows:
        return found, False
    letters = "(?s)" + ".*".join(re.escape(letter) for letter in "".join(words))
    return table.filter(_match(table, letters, columns)), True


def _match(table: pa.Table, pattern: str, columns: Iterable[str]) -> pa.ChunkedArray:
    """Return a mask of the rows with a match in any column. Arrow matches with RE2, which takes linear time."""
    matches = (pc.match_substring_regex(table[name], pattern, ignore_case=True) for name in columns)
    return reduce(pc.or_, (pc.fill_null(match, False) for match in matches))


def _sort(table: pa.Table, selection: Selection, names: tuple[str, ...]) -> pa.Table:
    """Sort rows, with names as further keys, so that equal rows keep their order between pages. Missing values come
    last.
    """
    order = "descending" if selection.descending else "ascending"
    keys = [(selection.sort, order), *((name, "ascending") for name in names if name != selection.sort)]
    return table.sort_by(keys)
