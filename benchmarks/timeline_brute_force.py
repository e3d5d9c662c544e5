"""Compare the tiles of a timeline of any size with the table `slices`, and count missing slices.

    python benchmarks/timeline_brute_force.py RUN [--tiles 40]

Checks tiles of the finest levels at random places. At the finest level, the tile must hold every slice of the table
that starts in it, by number. Above that level, the bins of the tile must stand for as many slices as start in it, and
hold every slice at least a bin wide by number. The table is read by row group, without the code under test.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))
from collector.format import parts
from collector.format.run import open_run
from profiler_server.timeline.cache import TimelineCache
from profiler_server.timeline.store import Timeline

Ints = npt.NDArray[np.int64]
LONGEST_SCAN_TILES = 64


class Rows:
    """Start, end and number of the rows of the table, read row group by row group. The last groups are kept."""

    def __init__(self, folder: Path) -> None:
        self._groups: list[tuple[pq.ParquetFile, int, int, int, int]] = []
        self._kept: dict[int, tuple[Ints, Ints]] = {}
        first = 0
        for path in parts.find_files(folder, "slices"):
            file = pq.ParquetFile(path)
            column = file.schema_arrow.names.index("start_ns")
            for group in range(file.num_row_groups):
                told = file.metadata.row_group(group)
                span = told.column(column).statistics
                self._groups.append((file, group, first, span.min, span.max))
                first += told.num_rows

    def find(self, begin: int, end: int) -> tuple[Ints, Ints, Ints]:
        """Return number, start and end of the rows that start in [begin, end)."""
        found = []
        for number, (_, _, first, least, most) in enumerate(self._groups):
            if most < begin or least >= end:
                continue
            start, length = self._read(number)
            rows = np.flatnonzero((start >= begin) & (start < end))
            found.append((first + rows, start[rows], start[rows] + length[rows]))
        columns = zip(*found, strict=True) if found else [[np.zeros(0, np.int64)]] * 3
        number_, start_, end_ = (np.concatenate(list(column)) for column in columns)
        return number_, start_, end_

    def _read(self, number: int) -> tuple[Ints, Ints]:
        if number not in self._kept:
            while len(self._kept) > LONGEST_SCAN_TILES:
                self._kept.pop(next(iter(self._kept)))
            file, group, *_ = self._groups[number]
            table = file.read_row_group(group, columns=["start_ns", "duration_ns"])
            self._kept[number] = (table["start_ns"].to_numpy(), table["duration_ns"].to_numpy())
        return self._kept[number]


def check_tile(timeline: Timeline, rows: Rows, level: int, number: int) -> tuple[int, int]:
    """Return how many slices were looked for in a tile, and how many of these were missing."""
    index = timeline.index
    size = 1 << (level + 10)
    begin, end = number * size + index.origin_ns, (number + 1) * size + index.origin_ns
    bins = timeline.cut_tile(level, number).bins
    sid, start, stop = rows.find(begin, end)
    if level == index.raw_level:
        return sid.size, int((~np.isin(sid, bins.id)).sum())
    wide = sid[stop - start >= (1 << level)]
    missing = int((~np.isin(wide, bins.id)).sum())
    # Counts are of all slices, those that other tables tell included: they are counted in the finest level.
    starting = sum(count_starting(timeline, lane, begin, end) for lane in range(len(index.lanes)))
    merged = bins.merged[bins.start + index.origin_ns >= begin].sum()
    return sid.size, missing + max(starting - int(merged), 0)


def count_starting(timeline: Timeline, lane: int, begin: int, end: int) -> int:
    origin = timeline.index.origin_ns
    return timeline.raw.find_start(lane, end - origin) - timeline.raw.find_start(lane, begin - origin)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("run", type=Path)
    reader.add_argument("--tiles", type=int, default=40, help="tiles of every level")
    given = reader.parse_args()
    rank = open_run(given.run).rank(0)
    timeline, rows = TimelineCache().open(rank), Rows(rank.folder)
    rng, began = np.random.default_rng(1), time.perf_counter()
    looked = missing = tiles = 0
    for level in range(timeline.index.raw_level, min(timeline.index.raw_level + 8, timeline.index.top_level) + 1):
        last = timeline.span_ns >> (level + 10)
        for number in rng.integers(0, last + 1, given.tiles).tolist():
            found = check_tile(timeline, rows, level, number)
            looked, missing, tiles = looked + found[0], missing + found[1], tiles + 1
    print(f"{tiles} tiles, {looked:,} slices looked for, {missing:,} missing, {time.perf_counter() - began:.0f} s")
    raise SystemExit(missing > 0)


if __name__ == "__main__":
    main()
