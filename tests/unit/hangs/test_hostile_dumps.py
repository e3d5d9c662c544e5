"""Values of a dump that are made to exhaust whoever spells them out: they are read as nothing."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from collector.hangs.flight_recorder import DumpError, read_dump, read_plain_pickle
from tests.support.dumps import make_dump, make_entry

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
