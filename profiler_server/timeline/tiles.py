"""Tiles: 1,024 bins of every lane of a rank, packed as columns of typed arrays. Little endian, each column 4-aligned.

| part         | type                     | content                                                              |
|--------------|--------------------------|----------------------------------------------------------------------|
| header       | 4 bytes                  | `TLT1`                                                               |
|              | u32 × 5                  | slices, lanes, counters, counter points, level                       |
|              | f64 × 2                  | start of the tile in ns since the origin, ns per tick                |
| lane table   | u32 × 2 × lanes          | lane, slices in it                                                   |
| start        | i32 × slices             | ticks since the tile's start; a slice that began long before is cut  |
| length       | u32 × slices             | ticks                                                                |
| id           | u32 × slices             | number of the slice; for a merged run, of its longest slice          |
| name         | u32 × slices             | number in the dictionary; for a merged run, of its longest slice     |
| count        | u16 × slices             | number of merged slices, at most 65535; 1 for a single slice         |
| fill         | u8 × slices              | share of the length that is busy, of 255                             |
| counter table| u32 × 2 × counters       | counter, points in it                                                |
| time         | i32 × points             | ticks since the tile's start                                         |
| low, high    | f32 × points, each       | least and greatest value in the bin                                  |
| last         | f32 × points             | value that holds until the next point                                |
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collector.format.intervals import Ints
from profiler_server.derive.derived import derived
from profiler_server.timeline.build import TILE_BITS
from profiler_server.timeline.store import Cut, Timeline

MEDIA_TYPE = "application/vnd.stepscope.tile"
_HEADER = struct.Struct("<4s5I2d")
_MAGIC = b"TLT1"
_EXACT_LEVEL = 20
"""Greatest level whose tiles are short enough for ticks of one nanosecond."""
_LOWEST, _HIGHEST = -(1 << 31), (1 << 31) - 1


class Points(NamedTuple):
    """Points of counters in a tile: counter, time, and the least, greatest and last value of the point's bin."""

    counter: npt.NDArray[np.uint32]
    time: Ints
    low: npt.NDArray[np.float32]
    high: npt.NDArray[np.float32]
    last: npt.NDArray[np.float32]


@derived()
def pack_tile(timeline: Timeline, level: int, number: int) -> bytes:
    """Return a tile in the layout above. `level` is from the raw to the top level; `number` starts at 0."""
    begin = number << (level + TILE_BITS)
    tick = 1 << max(0, level - _EXACT_LEVEL)
    cut = timeline.cut_tile(level, number)
    points = bin_counters(timeline, level, begin, begin + (1 << (level + TILE_BITS)))
    lanes, counters = _count_runs(cut.lane), _count_runs(points.counter)
    header = _HEADER.pack(
        _MAGIC, cut.lane.size, len(lanes), len(counters), points.time.size, level, float(begin), float(tick)
    )
    columns = (*_pack_slices(cut, begin, tick), counters, *_pack_points(points, begin, tick))
    return b"".join((header, _padded(lanes), *map(_padded, columns)))


def _pack_slices(cut: Cut, begin: int, tick: int) -> tuple[npt.NDArray[Any], ...]:
    bins = cut.bins
    start = np.clip((bins.start - begin) // tick, _LOWEST, _HIGHEST)
    end = np.clip(-((begin - bins.end) // tick), _LOWEST, _HIGHEST)
    fill = np.minimum(255, bins.busy * 255 // np.maximum(1, bins.end - bins.start))
    return (
        start.astype(np.int32),
        (end - start).astype(np.uint32),
        bins.id,
        bins.name,
        np.minimum(bins.merged, 65_535).astype(np.uint16),
        fill.astype(np.uint8),
    )


def _pack_points(points: Points, begin: int, tick: int) -> tuple[npt.NDArray[Any], ...]:
    time = np.clip((points.time - begin) // tick, _LOWEST, _HIGHEST).astype(np.int32)
    return time, points.low, points.high, points.last


def bin_counters(timeline: Timeline, level: int, begin: int, end: int) -> Points:
    """Return at most one point per bin of each counter in [begin, end), and the last point before `begin`."""
    pieces = []
    for number in range(len(timeline.counters.counts)):
        time, points = timeline.counters.cut(number, begin, end)
        if not time.size:
            continue
        value = points.astype(np.float32)
        home = time >> level
        opens = np.flatnonzero(np.concatenate(([True], home[1:] != home[:-1])))
        closes = np.append(opens[1:], time.size) - 1
        counter = np.full(opens.size, number, np.uint32)
        low, high = np.minimum.reduceat(value, opens), np.maximum.reduceat(value, opens)
        pieces.append((counter, time[opens], low, high, value[closes]))
    if not pieces:
        empty = np.zeros(0, np.float32)
        return Points(np.zeros(0, np.uint32), np.zeros(0, np.int64), empty, empty, empty)
    return Points(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))


def _count_runs(keys: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    if not keys.size:
        return np.zeros((0, 2), np.uint32)
    first = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    return np.stack((keys[first], np.diff(np.append(first, keys.size)).astype(np.uint32)), axis=1)


def _padded(column: npt.NDArray[Any]) -> bytes:
    raw = np.ascontiguousarray(column).tobytes()
    return raw + bytes(-len(raw) % 4)
