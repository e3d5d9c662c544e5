"""Write spans as a trace that Perfetto and chrome://tracing load.

The server's export draws a run as its timeline does; this is the plain one, for a frame of spans in Python.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.schema.errors import OptionError
from collector.views.frames import SCHEMA
from collector.views.trace_file import replacing
from collector.views.trace_text import EventWriter, SliceColumns, write_flows, write_slices

Int64s = npt.NDArray[np.int64]
_NEEDED = ("start", "dur", "name")


def write_spans(spans: Any, path: str | os.PathLike[str]) -> int:
    """Write spans (an Arrow table or a pandas frame, as `Run.spans` makes them) and return how many events there are.

    A path that ends in .gz is compressed. OptionError for a frame that lacks start, dur or name, OutputError for a
    path that cannot be written; then nothing is there.
    """
    table = _read_frame(spans)
    with replacing(Path(path)) as sink:
        writer = EventWriter(sink)
        pid, tid = _name_threads(writer, table)
        columns = SliceColumns(
            pid,
            tid,
            table["start"].to_numpy(),
            table["dur"].to_numpy(),
            _encode(table["name"]),
            _encode(table["cat"]),
            _join_arguments(table),
        )
        write_slices(writer, columns)
        _write_flows(writer, table, pid, tid)
        events = writer.events
        writer.close({"displayTimeUnit": "ms", "metadata": {"producer": "Stepscope"}})
    return events


def _read_frame(spans: Any) -> pa.Table:
    names = list(spans.column_names if isinstance(spans, pa.Table) else spans.columns)
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise OptionError(f"this is no frame of spans: it has no column {missing[0]!r}; make one with Run.spans()")
    table = spans if isinstance(spans, pa.Table) else pa.Table.from_pandas(spans, preserve_index=False)
    columns = [
        table[field.name].cast(field.type) if field.name in names else pa.nulls(table.num_rows, field.type)
        for field in SCHEMA
    ]
    whole = pa.Table.from_arrays(columns, schema=SCHEMA)
    # Of spans that start together the longer one comes first, or the viewer nests them the wrong way round.
    return whole.sort_by([("start", "ascending"), ("dur", "descending")])


def _name_threads(writer: EventWriter, table: pa.Table) -> tuple[Int64s, Int64s]:
    """Give every process and every thread of it a number and a name; return those of each span."""
    process = pc.binary_join_element_wise(
        pc.fill_null(table["trace_id"], ""), pc.fill_null(table["process"], ""), ": "
    ).combine_chunks()
    lanes = _find_lanes(table)
    thread = pc.binary_join_element_wise(process, pc.fill_null(table["thread"], "").combine_chunks(), "\0")
    suffix = pa.array(np.where(lanes > 0, np.char.add(" +", lanes.astype(str)), "").tolist(), pa.string())
    thread = pc.binary_join_element_wise(thread, suffix, "").dictionary_encode()
    process = process.dictionary_encode()
    pid = process.indices.to_numpy() + 1
    tid = thread.indices.to_numpy() + 1
    for number, name in enumerate(process.dictionary.to_pylist(), 1):
        name = name.removeprefix(": ")
        writer.write_event({"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}})
    owners = dict(zip(tid.tolist(), pid.tolist(), strict=True))
    for number, name in enumerate(thread.dictionary.to_pylist(), 1):
        place = {"ph": "M", "pid": owners[number], "tid": number}
        writer.write_event({**place, "name": "thread_name", "args": {"name": name.partition("\0")[2]}})
    return pid.astype(np.int64), tid.astype(np.int64)


def _find_lanes(table: pa.Table) -> Int64s:
    """Return 0 for spans that nest on their thread, and a lane for each that only overlaps what runs there: a viewer
    drops those that stand on one row with it."""
    lanes = np.zeros(table.num_rows, np.int64)
    keys = pc.binary_join_element_wise(
        pc.fill_null(table["process"], ""), pc.fill_null(table["thread"], ""), "\0"
    ).combine_chunks()
    codes = keys.dictionary_encode().indices.to_numpy()
    starts = table["start"].to_numpy()
    ends = starts + table["dur"].to_numpy()
    order = np.argsort(codes, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        if rows.size:
            lanes[rows] = _spread(starts[rows].tolist(), ends[rows].tolist())
    return lanes


def _spread(starts: list[int], ends: list[int]) -> list[int]:
    """Put each span on the first lane where it stands inside or after what is open there. Starts are in order."""
    open_ends: list[list[int]] = []
    lanes = []
    for start, end in zip(starts, ends, strict=True):
        lane = next((n for n, stack in enumerate(open_ends) if _has_room(stack, start, end)), len(open_ends))
        if lane == len(open_ends):
            open_ends.append([])
        open_ends[lane].append(end)
        lanes.append(lane)
    return lanes


def _has_room(open_ends: list[int], start: int, end: int) -> bool:
    while open_ends and open_ends[-1] <= start:
        open_ends.pop()
    return not open_ends or end <= open_ends[-1]


def _encode(column: pa.ChunkedArray) -> pa.DictionaryArray:
    return pc.fill_null(column, "").combine_chunks().dictionary_encode()


def _join_arguments(table: pa.Table) -> pa.Array:
    pieces: list[Any] = [pc.binary_join_element_wise('"span_id":', table["span_id"].cast(pa.string()), "")]
    pieces += [
        pc.binary_join_element_wise(f',"{name}":', table[name].cast(pa.string()), "")
        for name in ("parent_span_id", "step", "operator_index")
    ]
    joined = pc.binary_join_element_wise(*(pc.fill_null(piece, "") for piece in pieces), "")
    joined = joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined
    return pc.utf8_ltrim(joined, ",")


def _write_flows(writer: EventWriter, table: pa.Table, pid: Int64s, tid: Int64s) -> None:
    """Link each span on a device to the host span that launched it."""
    launch = pc.index_in(table["launched_by"], table["span_id"].combine_chunks())
    launch = launch.combine_chunks() if isinstance(launch, pa.ChunkedArray) else launch
    linked = pc.and_(pc.is_valid(launch), pc.is_valid(table["launched_by"].combine_chunks())).to_numpy(
        zero_copy_only=False
    )
    ends = np.flatnonzero(linked)
    begins = pc.fill_null(launch, 0).to_numpy()[ends]
    start = table["start"].to_numpy()
    for phase, rows in (("s", begins), ("f", ends)):
        place = {"pid": pid[rows], "tid": tid[rows], "start": start[rows], "id": ends}
        write_flows(writer, phase, place)
