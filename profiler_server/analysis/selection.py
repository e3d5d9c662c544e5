"""Search, sort and page rows in Arrow, so that a long table costs no Python object per row."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True)
class Selection:
    """Which rows to show: `sort` is a column, `page` counts from 1."""

    sort: str
    descending: bool = True
    search: str = ""
    page: int = 1
    size: int = 25


@dataclass(frozen=True)
class SelectedRows:
    """One page of rows. `loose` says that only the letters of the search were found, not the words."""

    rows: pa.Table
    matched: int
    page: int
    pages: int
    loose: bool


def select_rows(table: pa.Table, selection: Selection, search_in: tuple[str, ...] = ("name",)) -> SelectedRows:
    """Return one page of the rows that match, sorted over all of them; a page past the end is the last page.

    Every word of the search must stand in one of the columns, whatever its case. Where no row has them, those rows
    match that hold the letters in their order: `cnvbw` finds `convolution_backward`.
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
    """Match in linear time: Arrow's expressions are RE2's, which never backtrack."""
    matches = (pc.match_substring_regex(table[name], pattern, ignore_case=True) for name in columns)
    return reduce(pc.or_, (pc.fill_null(match, False) for match in matches))


def _sort(table: pa.Table, selection: Selection, names: tuple[str, ...]) -> pa.Table:
    """Sort with the names as further keys, so that equal rows keep one order from page to page; absent values last."""
    order = "descending" if selection.descending else "ascending"
    keys = [(selection.sort, order), *((name, "ascending") for name in names if name != selection.sort)]
    return table.sort_by(keys)
