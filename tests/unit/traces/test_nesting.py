"""Depths and parents of any set of slices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.traces.kineto import scratch
from collector.traces.kineto.nest import Spans, nest

slices = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 12)), max_size=40)


def _nest(rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int, int, int]]:
    track, start, length = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    found = nest(track, Spans(start, length, (np.arange(len(rows)),)))
    ends = start + length
    columns = (track, start, ends, found.depth, found.parent)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@settings(max_examples=300)
@given(slices)
def test_slices_of_a_track_and_depth_never_overlap(rows: list[tuple[int, int, int]]) -> None:
    _check_overlaps(rows)


@settings(max_examples=300)
@given(slices)
def test_parent_encloses_its_child_from_above(rows: list[tuple[int, int, int]]) -> None:
    _check_parents(rows)


@settings(max_examples=500)
@given(slices, st.integers(0, 3), st.sampled_from([5, 1000]))
def test_nesting_in_bulk_is_nesting_one_by_one(rows: list[tuple[int, int, int]], tolerance: int, size: int) -> None:
    track, start, length = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scratch, "BLOCK_ROWS", size)
        found = nest(track, Spans(start, length, (np.arange(len(rows)),), tolerance))
    assert list(zip(found.depth.tolist(), found.parent.tolist(), strict=True)) == _nest_singly(rows, tolerance)


def _nest_singly(rows: list[tuple[int, int, int]], tolerance: int) -> list[tuple[int, int]]:
    """Put slices on a stack, one after the other."""
    found = [(0, -1)] * len(rows)
    stacks: dict[int, list[int]] = {0: [], 1: []}
    for row in sorted(range(len(rows)), key=lambda row: (rows[row][1], -rows[row][2], row)):
        track, start, length = rows[row]
        stack = stacks[track]
        while stack and sum(rows[stack[-1]][1:]) <= start:
            stack.pop()
        around = [other for other in stack if sum(rows[other][1:]) >= start + length - tolerance]
        found[row] = len(stack), around[-1] if around else -1
        stack.append(row)
    return found


def _check_overlaps(rows: list[tuple[int, int, int]]) -> None:
    found = sorted(_nest(rows))
    reach: dict[tuple[int, int], int] = {}
    for track, start, end, depth, _ in found:
        if end > start:
            assert reach.get((track, depth), 0) <= start
            reach[track, depth] = end


def _check_parents(rows: list[tuple[int, int, int]]) -> None:
    found = _nest(rows)
    for track, start, end, depth, parent in found:
        if parent >= 0:
            assert found[parent][0] == track
            assert found[parent][1] <= start
            assert found[parent][2] >= end
            assert found[parent][3] < depth


def test_equal_slices_nest_by_their_tie() -> None:
    found = nest(np.zeros(2, np.int64), Spans(np.zeros(2, np.int64), np.array([5, 5]), (np.array([1, 0]),)))
    assert (found.depth.tolist(), found.parent.tolist()) == ([1, 0], [1, -1])


def test_parent_may_end_a_rounded_microsecond_early() -> None:
    track, start, length = np.zeros(2, np.int64), np.array([0, 5000]), np.array([10_000, 6000])
    strict = nest(track, Spans(start, length, ())).parent.tolist()
    assert strict == [-1, -1]
    assert nest(track, Spans(start, length, (), 1000)).parent.tolist() == [-1, 0]


@settings(max_examples=300)
@given(slices)
def test_blocks_of_any_size_nest_without_overlap(
    monkeypatch: pytest.MonkeyPatch, rows: list[tuple[int, int, int]]
) -> None:
    monkeypatch.setattr("collector.traces.kineto.scratch.BLOCK_ROWS", 3)
    _check_overlaps(rows)
    _check_parents(rows)


@settings(max_examples=100)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_slices_that_nest_are_the_same_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch, moves: list[int]) -> None:
    rows = _grow_nested(moves)
    monkeypatch.undo()
    whole = _nest(rows)
    monkeypatch.setattr("collector.traces.kineto.scratch.BLOCK_ROWS", 4)
    assert _nest(rows) == whole
    monkeypatch.setattr("collector.traces.kineto.scratch.BLOCK_ROWS", 16)
    monkeypatch.setattr("collector.traces.kineto.nest._WALKED_ROWS", 3)
    assert _nest(rows) == whole


def _grow_nested(moves: list[int]) -> list[tuple[int, int, int]]:
    """Return slices of one track that nest: each move closes so many open ones and opens one."""
    open_at: list[int] = []
    closed: list[tuple[int, int, int]] = []
    for now, move in enumerate(moves):
        for _ in range(min(move, len(open_at))):
            start = open_at.pop()
            closed.append((0, start, 10 * now - 5 - start))
        open_at.append(10 * now)
    end = 10 * len(moves) + 50
    return closed + [(0, start, end - place - start) for place, start in enumerate(open_at)]
