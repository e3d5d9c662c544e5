"""Pickles of plain values are read as pickle reads them; values that are made to exhaust whoever spells them out, as nothing."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.hangs.flight_recorder import DumpError, read_dump, read_plain_pickle
from tests.support.dumps import make_dump, make_entry


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


HUGE = 1 << 200_000


def share(depth: int) -> list[Any]:
    """Return a list that takes 10 ** depth items to spell, in a few hundred bytes."""
    found: list[Any] = []
    for _ in range(depth):
        found = [found] * 10
    return found


SHARED = share(40)


def read(dump: Any) -> None:
    said = ""
    try:
        found = read_dump(read_plain_pickle(pickle.dumps(dump, protocol=2)), "nccl_trace_rank_0")
        said = found.version + "".join(entry.name + entry.group + entry.place for entry in found.entries)
    except DumpError as error:
        said = str(error)
    assert 0 < len(said) < 2000


@pytest.mark.parametrize("value", [HUGE, SHARED], ids=["huge", "shared"])
@pytest.mark.parametrize("key", [*make_entry(1), "record_id", "seq_id"])
def test_an_entry_s_values_are_never_spelled_without_a_bound(key: str, value: Any) -> None:
    read(make_dump([make_entry(1, **{key: value})]))


@pytest.mark.parametrize("value", [HUGE, SHARED], ids=["huge", "shared"])
@pytest.mark.parametrize("key", ["version", "pg_status", "pg_config"])
def test_what_stands_beside_the_entries_is_not_either(key: str, value: Any) -> None:
    for told in (value, {"0": value}, {"0": {"ranks": value, "last_enqueued_collective": value}}):
        read({**make_dump([make_entry(1)]), key: told})


@pytest.mark.parametrize("value", [HUGE, SHARED], ids=["huge", "shared"])
@pytest.mark.parametrize("key", ["filename", "name", "line"])
def test_nor_are_frames(key: str, value: Any) -> None:
    read(make_dump([make_entry(1, frames=[{"filename": "a.py", "name": "f", "line": 1, key: value}])]))


def test_a_number_as_key_is_no_text_either() -> None:
    read({**make_dump([make_entry(1)]), "pg_status": {HUGE: {"last_completed_collective": 1}}})
