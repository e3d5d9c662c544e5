"""Depths and parents of any set of slices."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.traces.kineto.nest import nest

slices = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 12)), max_size=40)


def _nest(rows: list[tuple[int, int, int]]) -> list[tuple[int, int, int, int, int]]:
    track, start, length = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    found = nest(track, start, length, np.arange(len(rows)))
    ends = start + length
    columns = (track, start, ends, found.depth, found.parent)
    return list(zip(*(column.tolist() for column in columns), strict=True))


@settings(max_examples=300, deadline=None)
@given(slices)
def test_slices_of_a_track_and_depth_never_overlap(rows: list[tuple[int, int, int]]) -> None:
    found = sorted(_nest(rows))
    reach: dict[tuple[int, int], int] = {}
    for track, start, end, depth, _ in found:
        if end > start:
            assert reach.get((track, depth), 0) <= start
            reach[track, depth] = end


@settings(max_examples=300, deadline=None)
@given(slices)
def test_parent_encloses_its_child_from_above(rows: list[tuple[int, int, int]]) -> None:
    found = _nest(rows)
    for track, start, end, depth, parent in found:
        if parent >= 0:
            assert found[parent][0] == track
            assert found[parent][1] <= start
            assert found[parent][2] >= end
            assert found[parent][3] < depth


def test_equal_slices_nest_by_their_tie() -> None:
    found = nest(np.zeros(2, np.int64), np.zeros(2, np.int64), np.array([5, 5]), np.array([1, 0]))
    assert (found.depth.tolist(), found.parent.tolist()) == ([1, 0], [1, -1])


def test_parent_may_end_a_rounded_microsecond_early() -> None:
    track, start, length = np.zeros(2, np.int64), np.array([0, 5000]), np.array([10_000, 6000])
    strict = nest(track, start, length, np.arange(2)).parent.tolist()
    assert strict == [-1, -1]
    assert nest(track, start, length, np.arange(2), 1000).parent.tolist() == [-1, 0]
