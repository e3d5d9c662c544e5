"""Pickles of plain values are read as pickle reads them."""

from __future__ import annotations

import pickle
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from collector.hangs.flight_recorder import read_plain_pickle


def nest(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4) | st.tuples(inner)
        ),
        max_leaves=20,
    )


TEXTS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)


@settings(deadline=None, max_examples=40)
@given(nest(TEXTS))
def test_plain_values_are_read_as_pickle_reads_them(value: Any) -> None:
    assert read_plain_pickle(pickle.dumps(value, 2)) == value


@settings(deadline=None, max_examples=40)
@given(nest(TEXTS | st.binary(max_size=8)), st.sampled_from([3, 4, 5]))
def test_bytes_are_plain_from_protocol_3_on(value: Any, protocol: int) -> None:
    assert read_plain_pickle(pickle.dumps(value, protocol)) == value
