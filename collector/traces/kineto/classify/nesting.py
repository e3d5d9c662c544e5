"""Nest the slices of every track: depth and parent.

A track is sorted by start. Before a slice is pushed on a stack, all slices on top of the stack that have ended by its
start are popped. So a slice lies on the last earlier slice that has not ended at its start, and is one level deeper.
This also holds for slices that overlap without nesting, which are common in files with whole microseconds and among
device annotations. No slice is dropped, and no two slices of one track and depth overlap.

For speed, the slice below each slice is searched in bulk, in a tree of the latest ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collector.format.intervals import Ints, Mask
from collector.traces.kineto.scratch import Scratch

NONE = -1
_NEVER = -(1 << 63)
_WALKED_ROWS = 1 << 15
"""The number of slices nested at a time: their look-up data fits a core's cache."""


@dataclass(frozen=True)
class Nesting:
    """The depth of each slice and the row of its parent, NONE without one; in the original order of the slices."""

    depth: Ints
    parent: Ints


@dataclass(frozen=True)
class Spans:
    """The times of slices. Among slices with the same times, the one with the lowest `ties` encloses the others.

    A parent may end up to `tolerance_ns` before its child: times in whole microseconds are rounded one by one.
    """

    start_ns: Ints
    duration_ns: Ints
    ties: Sequence[npt.NDArray[np.signedinteger[Any]]]
    tolerance_ns: int = 0

    def sort(self, rows: Ints, scratch: Scratch) -> Ints:
        """Return rows sorted by start; among equal starts, the enclosing slice comes first."""
        return scratch.sort(self.start_ns, rows, lambda mine: (-self.duration_ns[mine], *(t[mine] for t in self.ties)))


def nest(track: Ints, spans: Spans, scratch: Scratch) -> Nesting:
    found = Nesting(scratch.array(len(track), 0), scratch.array(len(track), NONE))
    for rows in split_rows(track, scratch):
        rows = spans.sort(rows, scratch)
        stack: list[int] = []
        for block in scratch.blocks(len(rows)):
            near = rows[block]
            for start in range(0, len(near), _WALKED_ROWS):
                stack = _walk(near[start : start + _WALKED_ROWS], stack, spans, found)
    return found


def split_rows(numbers: Ints, scratch: Scratch) -> list[Ints]:
    """Return for each number from 0 to the largest the rows with this number; an empty array if no row has it."""
    largest = max((int(numbers[rows].max()) for rows in scratch.blocks(len(numbers))), default=-1)
    return scratch.partition(len(numbers), lambda rows: numbers[rows], largest + 1)


def _walk(rows: Ints, stack: list[int], spans: Spans, found: Nesting) -> list[int]:
    """Nest the next slices of a track, sorted by start.

    `stack` holds the slices that are open before these slices, the outermost first, the last one on top. Return the
    stack at the last slice.
    """
    count = len(stack)
    local = np.concatenate([np.array(stack, np.int64), rows])
    starts = spans.start_ns[local]
    ends = starts + spans.duration_ns[local]
    below = _find_below(starts, ends)
    below[:count] = np.arange(-1, count - 1)
    parent = _find_enclosing(below, ends, spans.tolerance_ns)[count:]
    found.depth[rows] = _measure_depth(below)[count:]
    found.parent[rows] = np.where(parent >= 0, local[parent], NONE)
    return [int(local[row]) for row in reversed(list(_climb(below, len(local) - 1)))]


def _find_below(starts: Ints, ends: Ints) -> Ints:
    """Return for each slice the row of the last earlier slice that ends after the slice starts; NONE without one.

    The search runs in a binary tree of latest ends. It climbs to the left until a block contains such a slice, then
    descends into that block.
    """
    tree = _build_tree(ends)
    below = np.full(len(starts), NONE, np.int64)
    asked = np.arange(len(starts))
    node = asked
    found: list[tuple[Ints, Ints]] = []
    for latest in tree:
        is_right = (node & 1).astype(bool)
        has_it = is_right & (latest[node - 1] > starts[asked])
        found.append((asked[has_it], node[has_it] - 1))
        rest = ~has_it & (node > 1)
        asked, node = asked[rest], node[rest] >> 1
    asked, node = np.empty(0, np.int64), np.empty(0, np.int64)
    for level in range(len(tree) - 1, -1, -1):
        if len(asked):
            node = 2 * node + 1
            node -= tree[level][node] <= starts[asked]
        asked, node = np.concatenate([asked, found[level][0]]), np.concatenate([node, found[level][1]])
    below[asked] = node
    return below


def _build_tree(ends: Ints) -> list[Ints]:
    """Return a tree of maxima: the latest end of each slice, each pair of slices, each group of four, and so on."""
    tree = [ends]
    while len(tree[-1]) > 1:
        last = tree[-1]
        if len(last) & 1:
            last = np.append(last, _NEVER)
            tree[-1] = last
        tree.append(np.maximum(last[::2], last[1::2]))
    return tree


def _find_enclosing(below: Ints, ends: Ints, tolerance_ns: int) -> Ints:
    """Return for each slice the nearest one along `below` that ends no earlier than the slice itself."""
    found = below.copy()
    rest = np.flatnonzero(found >= 0)
    while len(rest):
        rest = rest[ends[found[rest]] < ends[rest] - tolerance_ns]
        found[rest] = below[found[rest]]
        rest = rest[found[rest] >= 0]
    return found


def _measure_depth(below: Ints) -> Ints:
    """Return the number of slices below each slice; `below` is the one directly below. Each round doubles the reach."""
    depth, down = (below >= 0).astype(np.int64), below.copy()
    rest = np.flatnonzero(down >= 0)
    while len(rest):
        at = down[rest]
        depth[rest] += depth[at]
        down[rest] = down[at]
        rest = rest[down[rest] >= 0]
    return depth


def _climb(below: Ints, row: int) -> Iterator[int]:
    while row >= 0:
        yield row
        row = int(below[row])


def find_owners(above: Ints, is_owner: Mask, scratch: Scratch) -> Ints:
    """Return for each slice the nearest enclosing slice for which `is_owner` holds, -1 if there is none.

    `above` is an enclosing slice, such as the parent, with no owner between it and the slice. If the slice in `above`
    is no owner, the search goes on above that slice.
    """
    owner = scratch.array(len(above), NONE)
    for block in scratch.blocks(len(above)):
        owner[block] = above[block]
    todo = True
    while todo:
        todo = False
        for block in scratch.blocks(len(owner)):
            found = owner[block]
            rest = np.flatnonzero(found >= 0)
            rest = rest[~is_owner[found[rest]]]
            if len(rest):
                owner[block.start + rest] = owner[found[rest]]
                todo = True
    return owner
