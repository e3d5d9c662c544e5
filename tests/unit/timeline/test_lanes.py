from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiler_server.timeline.scratch import LaneAllocator

SLICES = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60), st.integers(0, 2)), min_size=1, max_size=80)


def place(slices: list[tuple[int, int, int]], batch: int) -> tuple[list[int], list[tuple[int, int, int]]]:
    ordered = sorted(slices)
    allocator = LaneAllocator()
    lanes: list[int] = []
    for at in range(0, len(ordered), batch):
        start, length, depth = (np.array(column, np.int64) for column in zip(*ordered[at : at + batch], strict=True))
        track = np.zeros(start.size, np.int32)
        lanes += allocator.place(track, depth.astype(np.int32), start, start + length).tolist()
    return lanes, ordered


@given(SLICES, st.integers(1, 30))
def test_slices_of_a_lane_never_overlap(slices: list[tuple[int, int, int]], batch: int) -> None:
    lanes, ordered = place(slices, batch)
    for lane in set(lanes):
        row = [ordered[i] for i in range(len(ordered)) if lanes[i] == lane]
        ends = [start + max(length, 1) for start, length, _ in row]
        assert all(begin >= end for (begin, _, _), end in zip(row[1:], ends, strict=False))


@given(SLICES)
def test_lanes_are_as_many_as_overlap_at_once(slices: list[tuple[int, int, int]]) -> None:
    lanes, ordered = place(slices, 10)
    for depth in {depth for _, _, depth in ordered}:
        mine = [(start, start + max(length, 1)) for start, length, d in ordered if d == depth]
        most = max(sum(a <= at < b for a, b in mine) for at, _ in mine)
        used = {lane for lane, (_, _, d) in zip(lanes, ordered, strict=True) if d == depth}
        assert len(used) <= most


def test_a_staircase_of_overlaps_takes_two_lanes() -> None:
    lanes, _ = place([(10 * i, 15, 0) for i in range(50)], 7)
    assert set(lanes) == {0, 1}
