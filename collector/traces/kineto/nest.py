"""Nest the slices of every track: depth and parent.

Slices that nest properly are done in bulk, level by level. Slices that overlap without nesting (files in whole
microseconds are full of them, and so are annotations of a device) are walked one by one, so that none is dropped and
no two of a track and depth overlap.

May import numpy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.traces.kineto.clock import Ints

NONE = -1


@dataclass(frozen=True)
class Nesting:
    """`order` sorts the slices by track, start and enclosure; `depth` and `parent` are in the slices' own order."""

    order: Ints
    depth: Ints
    parent: Ints


def nest(track: Ints, start_ns: Ints, duration_ns: Ints, tie: Ints, tolerance_ns: int = 0) -> Nesting:
    """Nest the slices of each track. Of slices with the same times, the one with the lower `tie` encloses.

    A parent may end up to `tolerance_ns` before its child: times in whole microseconds are rounded one by one.
    """
    order = np.lexsort((tie, -duration_ns, start_ns, track))
    depth = np.zeros(len(track), np.int64)
    parent = np.full(len(track), NONE, np.int64)
    edges = np.flatnonzero(np.diff(track[order])) + 1
    for rows in np.split(order, edges):
        if not len(rows):
            continue
        starts = start_ns[rows]
        ends = starts + duration_ns[rows]
        found = _nest_levels(starts, ends)
        levels, parents = found if found is not None else _nest_walking(starts, ends, tolerance_ns)
        depth[rows] = levels
        parent[rows] = np.where(parents >= 0, rows[parents], NONE)
    return Nesting(order, depth, parent)


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


def _nest_walking(starts: Ints, ends: Ints, tolerance_ns: int) -> tuple[Ints, Ints]:
    depth = np.zeros(len(starts), np.int64)
    parent = np.full(len(starts), NONE, np.int64)
    stack: list[int] = []
    last = ends.tolist()
    for row, (start, end) in enumerate(zip(starts.tolist(), last, strict=True)):
        while stack and last[stack[-1]] <= start:
            stack.pop()
        depth[row] = len(stack)
        for above in reversed(stack):
            if last[above] + tolerance_ns >= end:
                parent[row] = above
                break
        stack.append(row)
    return depth, parent


def walk_levels(depth: Ints) -> list[Ints]:
    """Return the rows of each depth, outermost first."""
    order = np.argsort(depth, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(depth[order])) + 1) if len(depth) else []


def find_owners(nesting: Nesting, is_owner: np.ndarray) -> Ints:
    """Return for each slice the nearest slice around it for which `is_owner` holds, -1 for none."""
    owner = np.full(len(nesting.depth), NONE, np.int64)
    for rows in walk_levels(nesting.depth):
        parents = nesting.parent[rows]
        inside = parents >= 0
        rows, parents = rows[inside], parents[inside]
        owner[rows] = np.where(is_owner[parents], parents, owner[parents])
    return owner
