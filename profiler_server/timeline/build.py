"""Build the cache of one rank's timeline: slices by lane, the pyramid above them, and an index by name.

The tables are streamed and their columns are kept in mapped files, so that memory is bounded for a run of any size.
Times in the cache are relative to `origin_ns`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from collector.format.intervals import Ints
from collector.format.run import RankRun
from collector.format.schema.removal import Marked, make_folder, remove_file, remove_tree
from profiler_server.timeline.derived import DERIVED_FILE, Derived, DerivedWriter, derive_slices, read_derived_batches
from profiler_server.timeline.device import DEVICE_ROWS, DeviceWork, device_tracks
from profiler_server.timeline.lane_file import BINS_KINDS, POINT_KINDS, RAW_KINDS, ColumnWriter, starts_file
from profiler_server.timeline.pyramid import Bins, Names, Uint32s, list_levels, merge_bins, single_bins, write_names
from profiler_server.timeline.scratch import Scatter, Scratch, let_go
from profiler_server.timeline.sources import (
    Series,
    Track,
    count_slices,
    find_highest_track,
    read_counters,
    read_in_order,
    read_tracks,
)

RAW_FILE = "raw.lanes"
_CHUNK_ROWS = 1 << 18


class SliceColumns(NamedTuple):
    """The slices of all lanes, lane after lane, in start order within a lane."""

    start: Ints
    end: Ints
    name: Uint32s
    sid: Uint32s

    def cut(self, first: int, last: int) -> SliceColumns:
        return SliceColumns._make(column[first:last] for column in self)


def level_file(level: int) -> str:
    return f"level_{level}.lanes"


class LevelWriter:
    """A writer of the raw lanes and merged levels. `longest_lane` is the number of slices in the longest lane."""

    def __init__(self, folder: Path, levels: list[int], scratch: Scratch, longest_lane: int) -> None:
        self._folder = folder
        self._levels = levels
        self._room = Bins(
            *(
                scratch.new_column(f"level_{name}", kind, longest_lane)
                for name, kind in zip(Bins._fields, BINS_KINDS, strict=True)
            )
        )
        self._open = ExitStack()
        self._raw = self._open.enter_context(ColumnWriter(folder / RAW_FILE, RAW_KINDS))
        self._writers = [
            self._open.enter_context(ColumnWriter(folder / level_file(level), BINS_KINDS)) for level in levels
        ]

    def write(self, lane: SliceColumns) -> None:
        self._raw.write(lane)
        rows = lane.start.size
        for place, (level, writer) in enumerate(zip(self._levels, self._writers, strict=True)):
            source = lane if place == 0 else self._room.cut(0, rows)
            rows = self._merge(source, rows, level)
            writer.write(self._room.cut(0, rows))
            let_go(*self._room)

    def _merge(self, source: SliceColumns | Bins, rows: int, level: int) -> int:
        """Merge short neighbours of a lane chunk by chunk into the buffer, and return the number of bins after merging.

        `source` may be the buffer itself, because merging never makes a chunk longer.
        """
        at = 0
        for first in range(0, rows, _CHUNK_ROWS):
            chunk = source.cut(first, min(first + _CHUNK_ROWS, rows))
            merged = merge_bins(chunk if isinstance(chunk, Bins) else single_bins(*chunk), level)
            part = slice(at, at + merged.start.size)
            for name in Bins._fields:
                getattr(self._room, name)[part] = getattr(merged, name)
            at = part.stop
        return at

    def close(self) -> list[int]:
        """Close the files and return the stored levels. A level with over half as many bins as slices is removed."""
        self._open.close()
        kept = []
        for level, writer in zip(self._levels, self._writers, strict=True):
            if writer.rows > self._raw.rows // 2:
                path = self._folder / level_file(level)
                remove_file(path)
                remove_file(starts_file(path))
            else:
                kept.append(level)
        return kept

    def __enter__(self) -> LevelWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()


FORMAT_VERSION = 9
"""A number in the cache's stamp. Raise it when the built files change."""
TILE_BITS = 10
"""A tile has 2**10 bins."""
INDEX_FILE, ORDER_FILE, NAMES_FILE, COUNTERS_FILE = "index.json", "order.lanes", "names.arrow", "counters.lanes"
_RAW_TILE_SLICES = 16_000
_FINEST_RAW, _COARSEST_RAW = 6, 19
_DENSITY_ROWS = 1 << 15
# How far building has come after reading, after summing up the device, and after laying out, of 1.
_READ, _DERIVED, _LAID_OUT = 0.5, 0.6, 0.75
Progress = Callable[[float], None]


class LaneEntry(msgspec.Struct, frozen=True, array_like=True):
    """One lane: its track, its depth, and its number of slices."""

    track: int
    depth: int
    count: int


class Index(msgspec.Struct, frozen=True):
    """The table of contents of a timeline's cache. Slices numbered from `table_rows` on are derived from other tables.

    `derived_rows` has the number of slices in each batch of the derived file. `levels` are the stored levels.
    """

    origin_ns: int
    end_ns: int
    slices: int
    table_rows: int
    raw_level: int
    top_level: int
    levels: list[int]
    tracks: list[Track]
    lanes: list[LaneEntry]
    counters: list[Track]
    derived_rows: list[int]


@dataclass(frozen=True)
class _Plan:
    tracks: list[Track]
    lanes: list[LaneEntry]
    number: npt.NDArray[np.int32]
    origin_ns: int
    end_ns: int
    raw_level: int
    top_level: int


def build_timeline(rank: RankRun, folder: Path, progress: Progress = lambda share: None) -> None:
    """Build the cache of a rank's timeline in a new folder. Raises RunError, or OSError on a full disk."""
    tracks = read_tracks(rank)
    free = 1 + max(find_highest_track(rank), *(track.id for track in tracks), -1)
    derived = derive_slices(rank, tracks, free)
    free += len(derived.tracks)
    counters = read_counters(rank, tracks, free + len(DEVICE_ROWS))
    table_rows = count_slices(rank)
    make_folder(folder)
    with Scratch(folder / "scratch") as scratch:
        device, derived_rows = _read_slices(rank, scratch, (tracks, derived, free), table_rows, progress)
        _read_derived(folder, scratch, (derived_rows, table_rows), progress)
        own = [track for track in tracks if track.kind != "counter" and track.id not in derived.superseded]
        plan = _plan(scratch, [*own, *derived.tracks, *device], counters)
        with ColumnWriter(folder / COUNTERS_FILE, POINT_KINDS) as writer:
            for series in counters:
                writer.write((series.time - plan.origin_ns, series.value))
        levels = _write_slices(folder, scratch, plan, progress)
        index = Index(
            plan.origin_ns,
            plan.end_ns,
            scratch.rows,
            table_rows,
            plan.raw_level,
            plan.top_level,
            levels,
            plan.tracks,
            plan.lanes,
            [series.track for series in counters],
            derived_rows,
        )
    (folder / INDEX_FILE).write_bytes(msgspec.json.encode(index))
    remove_tree(folder / "scratch", Marked(re.compile("scratch")))


def _read_slices(
    rank: RankRun, scratch: Scratch, known: tuple[list[Track], Derived, int], table_rows: int, progress: Progress
) -> tuple[tuple[Track, ...], list[int]]:
    """Read the table `slices` once, and write the derived slices beside it.

    Return the device tracks, and the number of derived slices in each batch of the derived file.
    """
    tracks, derived, device_track = known
    work = DeviceWork([track.id for track in tracks if track.kind == "stream"])
    scratch.reserve(table_rows)
    with DerivedWriter(scratch.folder.parent / DERIVED_FILE, derived.slices, device_track) as writer:
        for batch in read_in_order(rank, derived.superseded):
            scratch.fill(batch, 0)
            for found in work.add(batch):
                writer.write_device(found)
            progress(_READ * scratch.rows / (table_rows + 1))
        for found in work.finish():
            writer.write_device(found)
        scratch.reserve(table_rows + sum(writer.rows))
        return device_tracks(sorted(writer.device_rows), device_track), writer.rows


def _read_derived(folder: Path, scratch: Scratch, known: tuple[list[int], int], progress: Progress) -> None:
    table_rows, capacity = scratch.rows, scratch.start.size
    for batch in read_derived_batches(folder, *known):
        scratch.fill(batch, 1)
        progress(_READ + (_DERIVED - _READ) * (scratch.rows - table_rows) / max(capacity - table_rows, 1))


def _plan(scratch: Scratch, tracks: list[Track], counters: list[Series]) -> _Plan:
    known = {track.id: track for track in tracks}
    for track, _, _ in scratch.lanes.keys:
        known.setdefault(track, Track(track, "other", f"track {track}", "", 0))
    places = {track.id: place for place, track in enumerate(sorted(known.values(), key=_page_order))}
    keys = scratch.lanes.keys
    order = sorted(range(len(keys)), key=lambda lane: (places[keys[lane][0]], *keys[lane][1:]))
    number = np.empty(len(keys), np.int32)
    number[order] = np.arange(len(keys), dtype=np.int32)
    counts = _count(scratch, scratch.lane, len(keys))
    lanes = [LaneEntry(keys[lane][0], keys[lane][1] + keys[lane][2], int(counts[lane])) for lane in order]
    present = {lane.track for lane in lanes}
    begin, end = _find_span(scratch, counters)
    raw_level = _choose_raw_level(scratch)
    top_level = max(raw_level, int(max(end - begin, 1)).bit_length() - TILE_BITS)
    shown = [track for track in sorted(known.values(), key=_page_order) if track.id in present]
    return _Plan(shown, lanes, number, begin, end, raw_level, top_level)


_GROUP_OF_KIND = {"step": 0, "phase": 1, "range": 1, "device": 2, "stream": 3, "annotation": 5, "worker": 7, "stage": 8}


def _page_order(track: Track) -> tuple[int, int, int]:
    return _GROUP_OF_KIND.get(track.kind, 4), track.order, track.id


def _find_span(scratch: Scratch, counters: list[Series]) -> tuple[int, int]:
    starts = [int(series.time[0]) for series in counters]
    ends = [int(series.time[-1]) for series in counters]
    for part in scratch.parts():
        starts.append(int(scratch.start[part].min()))
        ends.append(int(scratch.end[part].max()))
    begin = min(starts, default=0)
    return begin, max(max(ends, default=0), begin + 1)


def _choose_raw_level(scratch: Scratch) -> int:
    """Return the raw level: the coarsest level at which few enough slices lie in each tile to show every single one."""
    densest = 0.0
    for part in scratch.parts():
        for at in range(part.start, part.stop, _DENSITY_ROWS):
            start = scratch.start[at : min(at + _DENSITY_ROWS, part.stop)]
            span = int(start.max() - start.min())
            densest = max(densest, start.size / max(span, 1_000_000))
    if not densest:
        return _COARSEST_RAW
    span_ns = _RAW_TILE_SLICES / densest
    return min(max(int(span_ns).bit_length() - 1 - TILE_BITS, _FINEST_RAW), _COARSEST_RAW)


def _count(scratch: Scratch, keys: npt.NDArray[np.integer], size: int) -> Ints:
    counts = np.zeros(size, np.int64)
    for part in scratch.parts():
        counts += np.bincount(keys[part], minlength=size)
    return counts


def _write_slices(folder: Path, scratch: Scratch, plan: _Plan, progress: Progress) -> list[int]:
    names = _sum_names(scratch)
    write_names(folder / NAMES_FILE, names)
    by_lane = Scatter(np.asarray([lane.count for lane in plan.lanes], np.int64))
    columns = _lay_out(folder, scratch, plan, (by_lane, Scatter(names.count)), progress)
    levels = list(list_levels(plan.raw_level, plan.top_level))
    longest = max((lane.count for lane in plan.lanes), default=0)
    with LevelWriter(folder, levels, scratch, longest) as writer:
        for first, last in zip(by_lane.offsets[:-1].tolist(), by_lane.offsets[1:].tolist(), strict=True):
            writer.write(columns.cut(first, last))
            let_go(*columns)
            progress(_LAID_OUT + (1 - _LAID_OUT) * last / max(scratch.rows, 1))
        return writer.close()


def _lay_out(
    folder: Path, scratch: Scratch, plan: _Plan, by: tuple[Scatter, Scatter], progress: Progress
) -> SliceColumns:
    """Return the slices in lane order, and write a file with their positions, sorted by name and then by start."""
    by_lane, by_name = by
    kinds = zip(SliceColumns._fields, (np.int64, np.int64, np.uint32, np.uint32), strict=True)
    laid = SliceColumns._make(scratch.new_column(f"lane_{name}", kind, scratch.rows) for name, kind in kinds)
    order = scratch.new_column("order", np.uint32, scratch.rows)
    for part in scratch.parts():
        place = by_lane.place(plan.number[scratch.lane[part]])
        laid.start[place] = scratch.start[part] - plan.origin_ns
        laid.end[place] = scratch.end[part] - plan.origin_ns
        laid.name[place], laid.sid[place] = scratch.name[part], scratch.sid[part]
        order[by_name.place(scratch.name[part])] = place.astype(np.uint32)
        let_go(*laid, order)
        progress(_DERIVED + (_LAID_OUT - _DERIVED) * part.stop / scratch.rows)
    with ColumnWriter(folder / ORDER_FILE, (np.uint32,)) as writer:
        writer.write((order,))
    return laid


def _sum_names(scratch: Scratch) -> Names:
    pairs = scratch.names.pairs
    count = np.zeros(len(pairs), np.int64)
    total, longest = count.copy(), count.copy()
    for part in scratch.parts():
        length = scratch.end[part] - scratch.start[part]
        count += np.bincount(scratch.name[part], minlength=len(pairs))
        np.add.at(total, scratch.name[part], length)
        np.maximum.at(longest, scratch.name[part], length)
    return Names([name for name, _ in pairs], [category for _, category in pairs], count, total, longest)
