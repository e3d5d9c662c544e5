"""Depths and parents of any set of slices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.traces.kineto import scratch
from collector.traces.kineto.classify import nesting
from collector.traces.kineto.classify.nesting import Spans, nest
from collector.traces.kineto.scratch import Scratch

slices = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 12)), max_size=40)


@settings(max_examples=150)
@given(slices, st.integers(0, 3), st.sampled_from([3, 5, 1000]), st.sampled_from([3, 1000]))
def test_nesting_in_bulk_is_nesting_one_by_one(
    rows: list[tuple[int, int, int]], tolerance: int, block: int, walked: int
) -> None:
    track, start, length = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scratch, "BLOCK_ROWS", block)
        patch.setattr(nesting, "_WALKED_ROWS", walked)
        found = nest(track, Spans(start, length, (np.arange(len(rows)),), tolerance), Scratch())
    nested = list(zip(found.depth.tolist(), found.parent.tolist(), strict=True))
    assert nested == _nest_singly(rows, tolerance)
    reach: dict[tuple[int, int], int] = {}
    for (own, begin, size), (depth, parent) in sorted(zip(rows, nested, strict=True)):
        assert not size or reach.get((own, depth), 0) <= begin
        reach[own, depth] = max(reach.get((own, depth), 0), begin + size)
        assert parent < 0 or (rows[parent][0] == own and nested[parent][0] < depth)


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


def test_equal_slices_nest_by_their_tie() -> None:
    found = nest(np.zeros(2, np.int64), Spans(np.zeros(2, np.int64), np.array([5, 5]), (np.array([1, 0]),)), Scratch())
    assert (found.depth.tolist(), found.parent.tolist()) == ([1, 0], [1, -1])


def test_parent_may_end_a_rounded_microsecond_early() -> None:
    track, start, length = np.zeros(2, np.int64), np.array([0, 5000]), np.array([10_000, 6000])
    strict = nest(track, Spans(start, length, ()), Scratch()).parent.tolist()
    assert strict == [-1, -1]
    assert nest(track, Spans(start, length, (), 1000), Scratch()).parent.tolist() == [-1, 0]
