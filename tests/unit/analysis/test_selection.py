"""Search, sort and paging of rows."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler_server.analysis.selection import SelectedRows, Selection, select_rows

TABLE = pa.table(
    {
        "name": ["aten::mm", "aten::convolution_backward", "aten::Relu", "aten::add"],
        "type": ["matmul", "convolution", "activation", None],
        "time": pa.array([30, 10, 20, None], pa.int64()),
    }
)


def _names(selected: SelectedRows) -> list[str]:
    names: list[str] = selected.rows["name"].to_pylist()
    return names


def test_rows_sort_both_ways_with_absent_values_last() -> None:
    falling = select_rows(TABLE, Selection("time"))
    rising = select_rows(TABLE, Selection("time", descending=False))
    assert _names(falling) == ["aten::mm", "aten::Relu", "aten::convolution_backward", "aten::add"]
    assert _names(rising) == ["aten::convolution_backward", "aten::Relu", "aten::mm", "aten::add"]


def test_search_takes_any_case_and_any_order_of_words() -> None:
    assert _names(select_rows(TABLE, Selection("time", search="BACKWARD conv"))) == ["aten::convolution_backward"]
    assert _names(select_rows(TABLE, Selection("time", search="relu"))) == ["aten::Relu"]


def test_search_reads_every_column_that_it_is_given() -> None:
    assert _names(select_rows(TABLE, Selection("time", search="matmul"), ("name", "type"))) == ["aten::mm"]


def test_letters_in_order_are_found_only_where_no_row_has_the_words() -> None:
    loose = select_rows(TABLE, Selection("time", search="cnvbw"))
    exact = select_rows(TABLE, Selection("time", search="mm"))
    assert (_names(loose), loose.loose) == (["aten::convolution_backward"], True)
    assert (_names(exact), exact.loose) == (["aten::mm"], False)


def test_search_treats_signs_as_text() -> None:
    assert select_rows(TABLE, Selection("time", search=".*(")).matched == 0
    assert select_rows(TABLE, Selection("time", search="::")).matched == 4


def test_a_page_past_the_end_is_the_last_page() -> None:
    selected = select_rows(TABLE, Selection("time", page=99, size=3))
    assert (selected.page, selected.pages, _names(selected)) == (2, 2, ["aten::add"])


@settings(max_examples=30)
@given(st.lists(st.integers(0, 5), max_size=60), st.integers(1, 7), st.booleans())
def test_the_pages_hold_every_row_once_in_order(values: list[int], size: int, descending: bool) -> None:
    table = pa.table({"name": [f"n{index:02d}" for index in range(len(values))], "time": pa.array(values, pa.int64())})
    first = select_rows(table, Selection("time", descending, size=size))
    pages = [select_rows(table, Selection("time", descending, page=n + 1, size=size)) for n in range(first.pages)]
    rows = [row for page in pages for row in page.rows.to_pylist()]
    sign = -1 if descending else 1
    assert rows == sorted(table.to_pylist(), key=lambda row: (sign * row["time"], row["name"]))
