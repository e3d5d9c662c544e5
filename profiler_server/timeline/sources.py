"""The sources of a timeline's slices and counters: the tables `slices`, `counters`, queue depths and memory.

A slice's number (`sid`) is its row in the table `slices`. Derived slices have the numbers after these rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.format import parts
from collector.format.intervals import Ints
from collector.format.run import RankRun
from collector.format.schema.errors import TableBrokenError, TableMissingError
from collector.format.stored_files import check_ranges, open_file
from collector.format.words import PIN_QUEUE, WORKER_QUEUE
from profiler_server.analysis.tables import choose, find_sound
from profiler_server.derive.stamps import shorten_stamp, stamp_tables
from profiler_server.timeline.pyramid import Int32s

BATCH_ROWS = 1 << 18
MEASURED_TABLES = ("slices", "tracks", "counters", "steps", "phases", "stages", "queues", "memory")
"""All tables behind a timeline."""
_COLUMNS = ("track", "depth", "start_ns", "duration_ns", "name", "category")


class Batch(NamedTuple):
    """Some slices as columns. `name` and `category` are dictionary arrays; `sid` is each slice's number."""

    track: Int32s
    depth: Int32s
    start: Ints
    end: Ints
    name: pa.DictionaryArray
    category: pa.DictionaryArray
    sid: npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Track:
    """One track of the timeline. `group` is its heading; `unit` is empty unless the track is a counter."""

    id: int
    kind: str
    name: str
    group: str
    order: int
    unit: str = ""


def read_tracks(rank: RankRun) -> list[Track]:
    """Return the tracks of the table `tracks`; empty if the table is missing or damaged."""
    columns = ("track", "kind", "name", "process", "order", "unit")
    rows = find_sound(rank, "tracks", columns).select(columns).to_pylist()
    return [
        Track(track, kind, name, group or "", order, unit or "")
        for track, kind, name, group, order, unit in map(dict.values, rows)
    ]


def count_slices(rank: RankRun) -> int:
    """Return the number of rows of the table `slices`; 0 if the table is missing or cannot be opened."""
    try:
        return rank.count_rows("slices")
    except (OSError, pa.ArrowException):
        return 0


def find_highest_track(rank: RankRun) -> int:
    """Return the highest track number in the table `slices`, or -1. The table `tracks` may lack this highest track."""
    highest = (int(raw.column(0).to_numpy().max(initial=-1)) for raw in read_columns(rank, ("track",), BATCH_ROWS * 4))
    return max(highest, default=-1)


def read_batches(rank: RankRun, superseded: Sequence[int] = ()) -> Iterator[Batch]:
    """Yield the table `slices` in file order, without the tracks `superseded`, for which other tables have better data.

    Raises TableBrokenError with the name of the damaged file.
    """
    first = 0
    for raw in read_columns(rank, _COLUMNS, BATCH_ROWS):
        yield _leave_out(as_batch(raw, first), superseded)
        first += raw.num_rows


def read_in_order(rank: RankRun, superseded: Sequence[int] = ()) -> Iterator[Batch]:
    """Yield the table `slices` in start order. Files are usually sorted already; others are sorted here."""
    if _is_sorted(rank):
        yield from read_batches(rank, superseded)
        return
    table = rank.table("slices", columns=_COLUMNS)
    order = np.argsort(table["start_ns"].to_numpy(), kind="stable")
    for at in range(0, order.size, BATCH_ROWS):
        rows = order[at : at + BATCH_ROWS]
        taken = table.take(pa.array(rows)).combine_chunks()
        batch = as_batch(taken.to_batches()[0], 0)._replace(sid=rows.astype(np.uint32))
        yield _leave_out(batch, superseded)


def _is_sorted(rank: RankRun) -> bool:
    previous = np.iinfo(np.int64).min
    for raw in read_columns(rank, ("start_ns",), BATCH_ROWS * 4):
        start = raw.column(0).to_numpy()
        if start.size and (start[0] < previous or (start[1:] < start[:-1]).any()):
            return False
        previous = start[-1] if start.size else previous
    return True


def read_columns(rank: RankRun, columns: Sequence[str], rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
    """Yield the given columns of the table `slices` in batches; nothing if its files cannot be opened.

    Raises TableBrokenError with the path of the file if damage is found during reading.
    """
    if rank.status("slices").state == "broken":  # the page reports it and shows the other tables
        return
    for path in parts.find_files(rank.folder, "slices"):
        with naming_damage(path):
            file = open_file(path, "slices", columns)
            # A single reader for all row groups would keep the data of each group until the last.
            for groups in _split_groups(file, rows):
                for batch in file.iter_batches(rows, row_groups=groups, columns=list(columns), use_threads=False):
                    check_ranges(batch, path)
                    yield batch


def _split_groups(file: pq.ParquetFile, rows: int) -> Iterator[list[int]]:
    """Yield lists of consecutive row groups of a file. Each list except the last holds at least `rows` rows."""
    groups: list[int] = []
    held = 0
    for group in range(file.num_row_groups):
        groups.append(group)
        held += file.metadata.row_group(group).num_rows
        if held >= rows or group == file.num_row_groups - 1:
            yield groups
            groups, held = [], 0


@contextmanager
def naming_damage(path: Path) -> Iterator[None]:
    """Replace exceptions from a damaged or vanished file by TableBrokenError or TableMissingError with `path`."""
    try:
        yield
    except FileNotFoundError:
        raise TableMissingError(f"{path} vanished while it was read; reload the run") from None
    except (OSError, pa.ArrowException, KeyError) as error:
        raise TableBrokenError(f"{path} is damaged ({str(error).splitlines()[0]})") from None


def as_batch(raw: pa.RecordBatch, first_sid: int) -> Batch:
    """Return a record batch with the columns of `slices` as arrays. Slices are numbered from `first_sid` on."""
    start = _whole(raw, "start_ns", pa.int64())
    return Batch(
        _whole(raw, "track", pa.int32()),
        _whole(raw, "depth", pa.int32()),
        start,
        start + np.maximum(_whole(raw, "duration_ns", pa.int64()), 0),
        _dictionary(raw.column("name")),
        _dictionary(raw.column("category")),
        np.arange(first_sid, first_sid + raw.num_rows, dtype=np.uint32),
    )


def _whole(raw: pa.RecordBatch, name: str, kind: pa.DataType) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = raw.column(name).cast(kind).fill_null(0).to_numpy(zero_copy_only=False)
    return array


def _dictionary(array: pa.Array) -> pa.DictionaryArray:
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    if array.null_count:
        array = pc.fill_null(array.cast(pa.string()), "").dictionary_encode()
    return array


def _leave_out(batch: Batch, superseded: Sequence[int]) -> Batch:
    if not superseded:
        return batch
    kept = ~np.isin(batch.track, np.asarray(superseded, np.int32))
    if kept.all():
        return batch
    mask = pa.array(kept)
    return Batch._make(column[kept] if isinstance(column, np.ndarray) else column.filter(mask) for column in batch)


def find_stamp(rank: RankRun, version: int) -> str:
    """Return a text that changes when the tables of the timeline or the format version of its files change."""
    return shorten_stamp((version, stamp_tables(rank.folder, MEASURED_TABLES)))


GROUP_QUEUES = "Queues"
GROUP_MEMORY = "Memory"
_QUEUE_LABELS = {WORKER_QUEUE: "worker queue", PIN_QUEUE: "pin-memory queue"}
_FIRST_ORDER = 2_100_000_000


class Series(NamedTuple):
    """One counter and its points: time and value. A value is valid until the next point."""

    track: Track
    time: Ints
    value: npt.NDArray[np.float64]


def read_counters(rank: RankRun, tracks: list[Track], first_id: int) -> list[Series]:
    """Return every counter of a rank. New tracks are numbered from `first_id`. A damaged table adds no counter."""
    memory = _read_memory(rank)
    # If the table `memory` exists, it has the same values as these tracks for each device.
    doubled = [track for track in tracks if memory and track.group == GROUP_MEMORY and track.unit == "bytes"]
    found = _read_trace_counters(rank, [track for track in tracks if track not in doubled])
    for group, unit, name, time, value in [*_read_queues(rank), *memory]:
        track = Track(first_id, "counter", name, group, _FIRST_ORDER + len(found), unit)
        first_id += 1
        found.append(_sorted_series(track, time, value))
    return [series for series in found if series.time.size]


_Named = tuple[str, str, str, Ints, npt.NDArray[np.float64]]


def _read_trace_counters(rank: RankRun, tracks: list[Track]) -> list[Series]:
    counting = {track.id: track for track in tracks if track.kind == "counter"}
    data = find_sound(rank, "counters", ("track", "start_ns", "value"))
    ids = data["track"].to_numpy()
    time, value = data["start_ns"].to_numpy(), data["value"].to_numpy()
    return [_sorted_series(track, time[ids == i], value[ids == i]) for i, track in counting.items()]


def _read_queues(rank: RankRun) -> list[_Named]:
    data = find_sound(rank, "queues", ("queue", "loader", "start_ns", "depth"))
    loaders = pc.unique(pc.fill_null(data["loader"], -1)).to_pylist()
    found: list[_Named] = []
    for loader in sorted(loaders):
        of_loader = data.filter(pc.equal(pc.fill_null(data["loader"], -1), loader))
        for queue in pc.unique(of_loader["queue"].cast(pa.string())).to_pylist():
            rows = choose(of_loader, "queue", queue)
            label = _QUEUE_LABELS.get(queue, queue)
            name = f"{label}, loader {loader}" if len(loaders) > 1 and loader >= 0 else label
            found.append((GROUP_QUEUES, "items", name, rows["start_ns"].to_numpy(), _to_floats(rows["depth"])))
    return found


def _read_memory(rank: RankRun) -> list[_Named]:
    data = find_sound(rank, "memory", ("device", "start_ns", "allocated_bytes", "reserved_bytes"))
    found: list[_Named] = []
    for device in sorted(pc.unique(data["device"]).to_pylist()):
        rows = data.filter(pc.equal(data["device"], device))
        # The host has no allocator that reserves memory. The value that a trace calls reserved is one mapping there.
        owner, told = ("host", ("allocated",)) if device < 0 else (f"device {device}", ("allocated", "reserved"))
        for what in told:
            kept = rows.filter(pc.is_valid(rows[f"{what}_bytes"]))
            values = _to_floats(kept[f"{what}_bytes"])
            found.append((GROUP_MEMORY, "bytes", f"{owner}, {what}", kept["start_ns"].to_numpy(), values))
    return found


def _to_floats(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    # Unsafe cast: a number beyond 2**53 is rounded. A safe cast would reject the whole timeline.
    values: npt.NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()
    return values


def _sorted_series(track: Track, time: Ints, value: npt.NDArray[np.float64]) -> Series:
    finite = np.isfinite(value)
    time, value = time[finite], value[finite]
    order = np.argsort(time, kind="stable")
    return Series(track, time[order], value[order])
