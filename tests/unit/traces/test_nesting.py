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
