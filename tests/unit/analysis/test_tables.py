"""Rows are found by their ids, in whatever order these stand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiler_server.analysis.tables import find_places

numbers = st.integers(0, 12)


@given(st.lists(numbers, unique=True) | numbers.map(lambda count: list(range(count))), st.lists(st.integers(-1, 15)))
def test_each_id_gets_the_place_of_its_row_or_none(ids: list[int], wanted: list[int]) -> None:
    found = find_places(np.array(ids, np.int64), np.array(wanted, np.int64))
    assert found.tolist() == [ids.index(each) if each in ids else -1 for each in wanted]
