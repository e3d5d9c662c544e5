"""The time of the device over all streams: computation, communication, copies and free time.

Slices come in start order. So no later slice changes the time before the latest start, and only one batch of a trace
needs to be in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from collector.format.intervals import Intervals, unite
from profiler_server.timeline.sources import Batch, Track

GROUP_DEVICE = "Device, all streams"
FIRST_ORDER = 10
_KINDS = ("compute", "communication", "copy")
_KIND_OF_CATEGORY = {"kernel": 0, "memset": 0, "communication": 1, "memcpy": 2}
_NOTHING = Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))
_LATEST = 1 << 62


class DeviceRow(NamedTuple):
    """A row above the streams: its name, and the category of its slices. No work of the device has this category: what
    counts the kernels of an exported trace must not count them twice."""

    name: str
    category: str


DEVICE_ROWS = (
    DeviceRow("Computation", "computation"),
    DeviceRow("Communication, overlapped", "overlap"),
    DeviceRow("Communication, exposed", "exposed communication"),
    DeviceRow("Copies, exposed", "exposed copy"),
    DeviceRow("Free time", "wait"),
)
_FREE = len(DEVICE_ROWS) - 1


class DeviceSlices(NamedTuple):
    """Slices of one row of `DEVICE_ROWS`, in start order; `row` is the index of this row."""

    row: int
    found: Intervals


class DeviceWork:
    """A converter, batch by batch, of the work on some streams into the slices of the rows in `DEVICE_ROWS`."""

    def __init__(self, streams: Sequence[int]) -> None:
        self._streams = np.asarray(streams, np.int32)
        self._open = [_NOTHING] * len(_KINDS)
        # A slice that reaches the end of the settled time may continue: it is held back until its end is known.
        self._held = [_NOTHING] * len(DEVICE_ROWS)
        self._settled: int | None = None

    def add(self, batch: Batch) -> Iterator[DeviceSlices]:
        """Add the next batch in start order. Yield the slices that no later batch can change."""
        if batch.start.size and self._streams.size:
            yield from self._settle(self._select(batch), int(batch.start[-1]))

    def finish(self) -> Iterator[DeviceSlices]:
        """Yield the remaining slices after the last batch."""
        yield from self._settle([_NOTHING] * len(_KINDS), None)

    def _select(self, batch: Batch) -> list[Intervals]:
        categories = batch.category.dictionary.to_pylist()
        kind_of_code = np.array([_KIND_OF_CATEGORY.get(name, -1) for name in categories] or [-1], np.int8)
        kind = kind_of_code[batch.category.indices.to_numpy()]
        kind = np.where(np.isin(batch.track, self._streams), kind, -1)
        return [unite(batch.start[kind == i], batch.end[kind == i]) for i in range(len(_KINDS))]

    def _settle(self, added: list[Intervals], until: int | None) -> Iterator[DeviceSlices]:
        work = [old | new for old, new in zip(self._open, added, strict=True)]
        if until is not None:
            self._open = [intervals & _between(until, _LATEST) for intervals in work]
            work = [intervals & _between(-_LATEST, until) for intervals in work]
        compute, communication, copies = work
        device = compute | communication | copies
        pieces = (
            compute,
            communication & compute,
            communication - compute,
            copies - compute - communication,
            self._find_free(device, until),
        )
        for row, piece in enumerate(pieces):
            if until is None and row == _FREE and not device.starts.size:
                continue  # nothing ran after it: the device's time is over
            yield DeviceSlices(row, self._hold_back(row, piece, until))

    def _find_free(self, device: Intervals, until: int | None) -> Intervals:
        if self._settled is None and not device.starts.size:
            return _NOTHING
        begin = int(device.starts[0]) if self._settled is None else self._settled
        end = until if until is not None else int(device.ends[-1]) if device.starts.size else begin
        self._settled = end
        return unite(np.array([begin]), np.array([end])) - device

    def _hold_back(self, row: int, piece: Intervals, until: int | None) -> Intervals:
        joined = self._held[row] | piece
        if until is None or not joined.ends.size or joined.ends[-1] != until:
            self._held[row] = _NOTHING
            return joined
        self._held[row] = Intervals(joined.starts[-1:], joined.ends[-1:])
        return Intervals(joined.starts[:-1], joined.ends[:-1])


def device_tracks(rows: Sequence[int], first_track: int) -> tuple[Track, ...]:
    return tuple(
        Track(first_track + row, "device", DEVICE_ROWS[row].name, GROUP_DEVICE, FIRST_ORDER + row)
        for row in sorted(rows)
    )


def _between(start: int, end: int) -> Intervals:
    return Intervals(np.array([start], np.int64), np.array([end], np.int64))
