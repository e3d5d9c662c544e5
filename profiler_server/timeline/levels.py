"""Writes the files that tiles are cut from, lane by lane: every slice, and the levels of the pyramid above them."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from collector.format.intervals import Ints
from collector.format.schema.removal import remove_file
from profiler_server.timeline.column_file import ColumnWriter, starts_file
from profiler_server.timeline.lane_file import BINS_KINDS, RAW_KINDS
from profiler_server.timeline.pyramid import Bins, Uint32s, merge_bins, single_bins
from profiler_server.timeline.scratch import Scratch, let_go

RAW_FILE = "raw.lanes"
_CHUNK_ROWS = 1 << 18


class SliceColumns(NamedTuple):
    """The slices of all lanes, lane after lane, in start order within a lane."""

    start: Ints
    end: Ints
    name: Uint32s
    sid: Uint32s

    def cut(self, first: int, last: int) -> SliceColumns:
        part = slice(first, last)
        return SliceColumns(self.start[part], self.end[part], self.name[part], self.sid[part])


def level_file(level: int) -> str:
    """Return the name of the file of a stored level."""
    return f"level_{level}.lanes"


class LevelWriter:
    """Writes the raw lanes and the levels above them. `room` is for the longest lane: a lane of any length is merged in place."""

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
        """Merge a lane chunk by chunk into the room and return its bins. A chunk never needs more room than it had."""
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
        """End the files and return the levels that are kept: one that hardly merges is not worth its room."""
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
