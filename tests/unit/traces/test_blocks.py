"""What is worked on in blocks comes out as if it were worked on at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.traces.kineto import scratch
from collector.traces.kineto.scratch import Scratch
from collector.traces.kineto.tables.context import split_batches
from collector.traces.reading import read_trace
from tests.support.traces import training_steps, write_trace


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "BLOCK_ROWS", 16)
    monkeypatch.setattr(scratch, "_SPILLED_ROWS", 8)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("spread", [3, 40, 10_000])
def test_rows_are_sorted_by_value_then_key_then_place(spread: int) -> None:
    chance = np.random.default_rng(spread)
    values, key = chance.integers(-spread, spread, 500), chance.integers(0, 3, 500)
    rows = np.flatnonzero(chance.random(500) < 0.8)
    found = Scratch().sort(values, rows, lambda mine: (key[mine],))
    assert found.tolist() == sorted(rows.tolist(), key=lambda row: (values[row], key[row], row))


@pytest.mark.usefixtures("small_blocks")
def test_rows_are_parted_by_group_in_order() -> None:
    groups = np.random.default_rng(1).integers(0, 7, 300)
    parted = Scratch().partition(len(groups), lambda rows: groups[rows], 8)
    assert [rows.tolist() for rows in parted] == [np.flatnonzero(groups == group).tolist() for group in range(8)]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("rows", [[], [7], [0, 1, 2], [3, 90, 91, 200], list(range(64))])
def test_stretches_cover_the_rows_and_are_short(rows: list[int]) -> None:
    found = [part.tolist() for part in Scratch().stretches(np.array(rows, np.int64))]
    assert [row for stretch in found for row in stretch] == rows
    assert all(0 <= stretch[-1] - stretch[0] < 16 for stretch in found)


@given(st.lists(st.tuples(st.integers(-1, 4), st.integers(0, 3)), max_size=60), st.integers(1, 9))
def test_no_step_and_name_is_in_two_batches(pairs: list[tuple[int, int]], size: int) -> None:
    step, name = (np.array([pair[at] for pair in pairs], np.int64) for at in (0, 1))
    found = [places.tolist() for places in split_batches(step, name, 4, Scratch(), size)]
    assert sorted(place for places in found for place in places) == list(range(len(pairs)))
    batches_of = [{pairs[place] for place in places} for places in found]
    assert sum(map(len, batches_of)) == len(set(pairs))
    assert [pairs[place][0] for places in found for place in places] == sorted(step.tolist())


def test_trace_in_small_blocks_gives_the_same_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_trace(tmp_path / "t.json", training_steps(12))
    whole = {name: table.to_pylist() for name, table in read_trace(path).tables.items()}
    monkeypatch.setattr(scratch, "BLOCK_ROWS", 16)
    monkeypatch.setattr(scratch, "_SPILLED_ROWS", 8)
    assert {name: table.to_pylist() for name, table in read_trace(path).tables.items()} == whole
