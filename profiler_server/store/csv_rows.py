"""Rows as CSV (RFC 4180) that a spreadsheet opens without running any of it."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

FORMULA = r"^[=+@\t\r-]"
"""What makes a spreadsheet read a cell as a formula; frontend/static/js/csv.js has the same rule."""
NUMBER = r"^[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?$"
_FORMULA, _NUMBER = re.compile(FORMULA), re.compile(NUMBER)


class _Sink(Protocol):
    def write(self, text: str, /) -> Any: ...


def guard_cell(value: Any) -> Any:
    """Return a cell as it is, or with an apostrophe before a text that a spreadsheet would run. Numbers stay numbers."""
    if isinstance(value, (int, float)) or value is None:
        return value
    text = str(value)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.match(text) else value


def guard_texts(rows: pa.Table) -> pa.Table:
    """Return a table in which every text is what `guard_cell` makes of it."""
    for index, field in enumerate(rows.schema):
        if pa.types.is_string(field.type):
            column = rows[field.name]
            runs = pc.and_not(pc.match_substring_regex(column, FORMULA), pc.match_substring_regex(column, NUMBER))
            guarded = pc.if_else(runs, pc.binary_join_element_wise("'", column, ""), column)
            rows = rows.set_column(index, field.name, guarded)
    return rows


def write_rows(sink: _Sink, rows: Iterable[Sequence[Any]], line_end: str = "\r\n") -> None:
    """Write rows of values, null as the empty field."""
    csv.writer(sink, lineterminator=line_end).writerows([guard_cell(value) for value in row] for row in rows)
