"""Lanes: the rows of the timeline. A lane holds slices of one track and depth that never overlap.

A slice that would overlap another of its track and depth gets one more lane, so that none is ever dropped. Then starts
and ends are both sorted within a lane, a binary search finds a window, and one predecessor at most reaches into it.
"""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from collector.format.intervals import Ints

Int32s = npt.NDArray[np.int32]


class LaneAllocator:
    """Gives every slice its lane. Slices come in batches; over all of them a (track, depth) is fed in start order."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, int, int], int] = {}
        self._running: dict[tuple[int, int], _Row] = {}

    @property
    def keys(self) -> list[tuple[int, int, int]]:
        """Return (track, depth, extra) of every lane by its number."""
        return list(self._numbers)

    def place(self, track: Int32s, depth: Int32s, start: Ints, end: Ints) -> Int32s:
        """Return the lane number of each slice; an instant takes the one nanosecond that it starts in."""
        lanes = np.empty(start.size, np.int32)
        order = np.lexsort((start, depth, track))
        track, depth = track[order], depth[order]
        begins = np.flatnonzero(np.concatenate(([True], (track[1:] != track[:-1]) | (depth[1:] != depth[:-1]))))
        for first, last in zip(begins.tolist(), [*begins[1:].tolist(), start.size], strict=True):
            if first == last:
                continue
            rows = order[first:last]
            key = (int(track[first]), int(depth[first]))
            row = self._running.setdefault(key, _Row())
            extra = row.place(start[rows], np.maximum(end[rows], start[rows] + 1))
            numbers = [self._numbers.setdefault((*key, i), len(self._numbers)) for i in range(row.lanes)]
            lanes[rows] = np.asarray(numbers, np.int32)[extra]
        return lanes


class _Row:
    """The slices of one track and depth, spread over as many lanes as overlap at once."""

    def __init__(self) -> None:
        self.lanes = 1
        self._reach = np.iinfo(np.int64).min
        self._busy: list[tuple[int, int]] = []
        self._free: list[int] = []

    def place(self, start: Ints, end: Ints) -> Int32s:
        """Return 0 for the slices that overlap nothing, by array operations; the others are walked through."""
        reach = np.maximum.accumulate(np.concatenate(([self._reach], end)))
        alone = start >= reach[:-1]
        extra = np.zeros(start.size, np.int32)
        if not alone.all():
            # A cluster starts where everything before has ended; those of one slice need no walk.
            walked = np.flatnonzero(~alone | np.concatenate((~alone[1:], [False])))
            extra[walked] = self._walk(start[walked].tolist(), end[walked].tolist(), alone[walked].tolist())
        if alone[-1]:
            self._busy, self._free = [(int(end[-1]), int(extra[-1]))], list(range(1, self.lanes))
        self._reach = int(reach[-1])
        return extra

    def _walk(self, starts: list[int], ends: list[int], alone: list[bool]) -> list[int]:
        placed = []
        for start, end, fresh in zip(starts, ends, alone, strict=True):
            if fresh:
                self._busy, self._free = [], list(range(self.lanes))
            while self._busy and self._busy[0][0] <= start:
                heapq.heappush(self._free, heapq.heappop(self._busy)[1])
            if self._free:
                lane = heapq.heappop(self._free)
            else:
                lane, self.lanes = self.lanes, self.lanes + 1
            heapq.heappush(self._busy, (end, lane))
            placed.append(lane)
        return placed
