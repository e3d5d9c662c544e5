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
_MOST_ROUNDS = 12
"""So often overlaps are resolved in bulk; a track with longer chains of them is walked."""


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
    """Goes through the sorted slices of one track.

    `_stack` holds the rows that the last ones stand in, `_until` how long each stays there: a slice that ends before
    another one that began within it stays as long as that one.
    """

    def __init__(self, spans: Spans, found: Nesting) -> None:
        self._spans = spans
        self._found = found
        self._stack: list[int] = []
        self._until: list[int] = []

    def take(self, rows: Ints) -> None:
        """Nest the next rows."""
        spans = self._spans
        self._close(int(spans.start_ns[rows[0]]))
        count = len(self._stack)
        local = np.concatenate([np.array(self._stack, np.int64), rows])
        starts = spans.start_ns[local]
        ends = starts + spans.duration_ns[local]
        stays = np.concatenate([np.array(self._until, np.int64), ends[count:]])
        found = _nest_levels(starts, stays)
        if found is None or (found.depth[:count] != np.arange(count)).any():
            self._walk(rows, starts[count:].tolist(), ends.tolist())
            return
        parent = found.find_enclosing(ends, spans.tolerance_ns)[count:]
        self._found.depth[rows] = found.depth[count:]
        self._found.parent[rows] = np.where(parent >= 0, local[parent], NONE)
        still = np.flatnonzero(found.until > starts[-1])
        still = still[np.argsort(found.depth[still], kind="stable")]
        self._stack, self._until = local[still].tolist(), found.until[still].tolist()

    def _close(self, now: int) -> None:
        while self._stack and self._until[-1] <= now:
            self._stack.pop()
            self._until.pop()

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
        self._until = np.maximum.accumulate(np.array(lasts[::-1], np.int64))[::-1].tolist()


@dataclass
class _Levels:
    """Sorted slices that nest: depth, the slice that each stands on, and until when it stays. Row numbers, NONE for none."""

    depth: Ints
    below: Ints
    until: Ints

    def find_enclosing(self, ends: Ints, tolerance_ns: int) -> Ints:
        """Return the nearest slice that each stands on and that does not end before it."""
        found = self.below.copy()
        rest = np.flatnonzero(found >= 0)
        while len(rest):
            rest = rest[ends[found[rest]] < ends[rest] - tolerance_ns]
            found[rest] = self.below[found[rest]]
            rest = rest[found[rest] >= 0]
        return found


def _nest_levels(starts: Ints, ends: Ints) -> _Levels | None:
    """Nest sorted slices in bulk, None if too many overlap without nesting.

    A slice that ends before one that began within it is made to end with it, and all is nested anew.
    """
    until = ends.copy()
    for _ in range(_MOST_ROUNDS):
        found, changed = _nest_once(starts, ends, until)
        if found is not None:
            return found
        if not changed:
            return None
    return None


def _nest_once(starts: Ints, ends: Ints, until: Ints) -> tuple[_Levels | None, bool]:
    """Nest slices that stay so long, None if some overlap; of those `until` is moved, and it is said whether any was."""
    instant = starts == ends
    solid = np.flatnonzero(~instant)
    depth = np.empty(len(starts), np.int64)
    closed = np.sort(until[solid])
    # Open slices at a start: those that began before it in order, less those that have ended.
    depth[solid] = np.arange(len(solid)) - np.searchsorted(closed, starts[solid], side="right")
    points = np.flatnonzero(instant)
    begun = np.searchsorted(starts[solid], starts[points], side="right")
    depth[points] = begun - np.searchsorted(closed, starts[points], side="right")
    below = np.full(len(starts), NONE, np.int64)
    above = np.empty(0, np.int64)
    fits, changed = True, False
    for level in range(int(depth.max(initial=0)) + 1):
        here = np.flatnonzero(depth == level)
        firm = here[~instant[here]]
        late = np.flatnonzero(starts[firm][1:] < until[firm][:-1])
        fits &= not len(late)
        changed |= _prolong(until, firm[late], firm[late + 1])
        if level:
            owner = _find_owners(above, here, starts)
            if owner is None:
                return None, changed
            below[here] = owner
            late = np.flatnonzero(until[here] > until[owner])
            fits &= not len(late)
            late = late[starts[here[late]] < until[owner[late]]]
            changed |= _prolong(until, owner[late], here[late])
        above = firm
    return (_Levels(depth, below, until) if fits else None), changed


def _prolong(until: Ints, first: Ints, second: Ints) -> bool:
    """Make slices stay as long as those that begin within them. Say whether any had not."""
    short = np.flatnonzero(until[first] < until[second])
    np.maximum.at(until, first[short], until[second[short]])
    return len(short) > 0


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
