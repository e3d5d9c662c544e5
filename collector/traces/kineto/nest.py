"""Nest the slices of every track: depth and parent.

A track is sorted by start and worked on in blocks; what is still open at the end of a block goes on into the next.
Slices that nest properly are done in bulk, level by level. Slices that overlap without nesting (files in whole
microseconds are full of them, and so are annotations of a device) are walked one by one, so that none is dropped and
no two of a track and depth overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from collector.traces.kineto.clock import Ints
from collector.traces.kineto.scratch import Scratch, blocks
from collector.traces.kineto.sort import sort_rows

NONE = -1


@dataclass(frozen=True)
class Nesting:
    """`depth` and `parent` of each slice, in the slices' own order."""

    depth: Ints
    parent: Ints


@dataclass(frozen=True)
class Spans:
    """When slices run. Of slices with the same times, the one with the lowest `ties` encloses the others.

    A parent may end up to `tolerance_ns` before its child: times in whole microseconds are rounded one by one.
    """

    start_ns: Ints
    duration_ns: Ints
    ties: Sequence[npt.NDArray[np.signedinteger[Any]]]
    tolerance_ns: int = 0

    def sort(self, rows: Ints, scratch: Scratch) -> Ints:
        """Return rows by start, and those that start together with the enclosing one first."""
        return sort_rows(
            self.start_ns, rows, scratch, lambda mine: (-self.duration_ns[mine], *(t[mine] for t in self.ties))
        )


def nest(track: Ints, spans: Spans, scratch: Scratch | None = None) -> Nesting:
    """Nest the slices of each track."""
    scratch = scratch or Scratch()
    found = Nesting(scratch.array(len(track), 0), scratch.array(len(track), NONE))
    for rows in _split(track, scratch):
        rows = spans.sort(rows, scratch)
        walk = _TrackWalk(spans, found)
        for block in blocks(len(rows)):
            walk.take(rows[block])
            scratch.release()
    return found


def _split(numbers: Ints, scratch: Scratch) -> list[Ints]:
    """Return the rows of each number, from 0 on; those that do not occur have none."""
    largest = max((int(numbers[rows].max()) for rows in blocks(len(numbers))), default=-1)
    return scratch.partition(len(numbers), lambda rows: numbers[rows], largest + 1)


class _TrackWalk:
    """Goes through the sorted slices of one track. `_stack` holds the rows that the last ones stand in."""

    def __init__(self, spans: Spans, found: Nesting) -> None:
        self._spans = spans
        self._found = found
        self._stack: list[int] = []

    def take(self, rows: Ints) -> None:
        """Nest the next rows."""
        spans = self._spans
        self._close(int(spans.start_ns[rows[0]]))
        open_rows = np.array(self._stack, np.int64)
        local = np.concatenate([open_rows, rows])
        starts = spans.start_ns[local]
        ends = starts + spans.duration_ns[local]
        found = _nest_levels(starts, ends) if (ends[: len(open_rows)] > starts[-len(rows)]).all() else None
        if found is None or (found[0][: len(open_rows)] != np.arange(len(open_rows))).any():
            self._walk(rows, starts[len(open_rows) :].tolist(), ends.tolist())
            return
        depth, parent = (values[len(open_rows) :] for values in found)
        self._found.depth[rows] = depth
        self._found.parent[rows] = np.where(parent >= 0, local[parent], NONE)
        still = np.flatnonzero(ends > starts[-1])
        self._stack = local[still[np.argsort(found[0][still], kind="stable")]].tolist()

    def _close(self, now: int) -> None:
        start_ns, duration_ns = self._spans.start_ns, self._spans.duration_ns
        while self._stack and start_ns[self._stack[-1]] + duration_ns[self._stack[-1]] <= now:
            self._stack.pop()

    def _walk(self, rows: Ints, starts: list[int], ends: list[int]) -> None:
        stack, lasts = self._stack, ends[: len(self._stack)]
        tolerance_ns = self._spans.tolerance_ns
        depths, parents = [], []
        for row, start, end in zip(rows.tolist(), starts, ends[len(stack) :], strict=True):
            while lasts and lasts[-1] <= start:
                del lasts[-1], stack[-1]
            depth = above = len(lasts)
            while above and lasts[above - 1] < end - tolerance_ns:
                above -= 1
            depths.append(depth)
            parents.append(stack[above - 1] if above else NONE)
            stack.append(row)
            lasts.append(end)
        self._found.depth[rows], self._found.parent[rows] = depths, parents


def _nest_levels(starts: Ints, ends: Ints) -> tuple[Ints, Ints] | None:
    """Return depth and parent (as row numbers) of sorted slices, None if some overlap without nesting."""
    instant = starts == ends
    solid = np.flatnonzero(~instant)
    depth = np.empty(len(starts), np.int64)
    closed = np.sort(ends[solid])
    # Open slices at a start: those that began before it in order, less those that have ended.
    depth[solid] = np.arange(len(solid)) - np.searchsorted(closed, starts[solid], side="right")
    points = np.flatnonzero(instant)
    begun = np.searchsorted(starts[solid], starts[points], side="right")
    depth[points] = begun - np.searchsorted(closed, starts[points], side="right")
    parent = np.full(len(starts), NONE, np.int64)
    above = np.empty(0, np.int64)
    for level in range(int(depth.max(initial=0)) + 1):
        here = np.flatnonzero(depth == level)
        firm = here[~instant[here]]
        if (starts[firm][1:] < ends[firm][:-1]).any():
            return None
        if level:
            owner = _find_owners(above, here, starts)
            if owner is None or (ends[here] > ends[owner]).any():
                return None
            parent[here] = owner
        above = firm
    return depth, parent


def _find_owners(above: Ints, here: Ints, starts: Ints) -> Ints | None:
    """Return for each slice the last one of the level above that began at or before it."""
    at = np.searchsorted(starts[above], starts[here], side="right") - 1
    return above[at] if len(above) and (at >= 0).all() else None


def walk_levels(depth: Ints, scratch: Scratch | None = None) -> list[Ints]:
    """Return the rows of each depth, outermost first."""
    return _split(depth, scratch or Scratch())


def find_owners(nesting: Nesting, is_owner: np.ndarray, scratch: Scratch | None = None) -> Ints:
    """Return for each slice the nearest slice around it for which `is_owner` holds, -1 for none."""
    scratch = scratch or Scratch()
    owner = scratch.column()
    for block in blocks(len(nesting.parent)):
        found = nesting.parent[block].copy()
        rest = np.flatnonzero(found >= 0)
        while len(rest):
            rest = rest[~is_owner[found[rest]]]
            found[rest] = nesting.parent[found[rest]]
            rest = rest[found[rest] >= 0]
        owner.append(found)
        scratch.release()
    return owner.finish()
