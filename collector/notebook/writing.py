"""Write spans as a trace for Perfetto and chrome://tracing.

The server's export uses the same rows, and adds computed data: counters, windows, overlap.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.carried import carry_tables
from collector.format.schema.errors import OptionError
from collector.format.timeline_rows import check_numbers, list_workers, sort_place
from collector.notebook.frames import SCHEMA, SpanChoice, build_spans
from collector.traces.writing import (
    EventWriter,
    Int64s,
    SliceColumns,
    name_overlapping,
    name_process,
    replacing,
    spread_overlapping,
    write_flows,
    write_slices,
)

if TYPE_CHECKING:
    from collector.format.run import Run

_NEEDED = ("start", "dur", "name")
_PLACE = ("trace_id", "process", "thread")


def write_trace(spans: Any, path: str | os.PathLike[str]) -> int:
    """Write spans from `Run.spans`, or some of them, as a trace; return its number of events.

    Takes a pandas frame or an Arrow table. A path that ends in .gz is compressed. OptionError for a frame that lacks
    start, dur or name; OutputError for a path that cannot be written, and then no file is left.

    >>> stepscope.write_trace(run.spans(categories="kernel", steps=(10, 12)), "kernels.json.gz")
    """
    with replacing(Path(path)) as sink:
        return _write(EventWriter(sink), _read_frame(spans), {"metadata": {"producer": "Stepscope"}})


def write_run(run: Run, path: str | os.PathLike[str], ranks: Sequence[int], workers: Sequence[int] | None) -> int:
    """Write the spans of some ranks as a trace; with `workers` None, also their tables for an import. Return the number
    of events. Raises as `Run.write_trace`."""
    opened = [run.rank(rank) for rank in dict.fromkeys(ranks)]
    chosen = None if workers is None else check_numbers("worker", list_workers(opened), workers)
    choice = SpanChoice(workers=None if chosen is None else tuple(chosen))
    spans = [build_spans(rank, f"rank {rank.rank}", choice) for rank in opened]
    table = _read_frame(pa.concat_tables([SCHEMA.empty_table(), *spans]))
    with replacing(Path(path)) as sink:
        # The tables of a few workers would tell wrong shares of the whole pipeline.
        writer = EventWriter(sink, carry_tables(run, opened) if workers is None else {})
        metadata = {"producer": "Stepscope", "run": run.manifest.id, "name": run.manifest.name}
        return _write(writer, table, {"baseTimeNanoseconds": run.manifest.epoch_unix_ns, "metadata": metadata})


def _write(writer: EventWriter, table: pa.Table, tail: dict[str, Any]) -> int:
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
    writer.close({"displayTimeUnit": "ms", **tail})
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
    lanes = _find_lanes(table)
    encoded = [_encode(table[name]) for name in _PLACE]
    # Numbers are joined, not texts: a name may hold any separator.
    codes = np.stack([*(column.indices.to_numpy() for column in encoded), lanes], axis=1)
    distinct, row = np.unique(codes, axis=0, return_inverse=True)
    names = [column.dictionary.to_pylist() for column in encoded]
    places = [(names[0][o], names[1][p], names[2][t], lane) for o, p, t, lane in distinct.tolist()]
    owners = list(dict.fromkeys(place[0] for place in places))
    order = sorted(range(len(places)), key=lambda at: (owners.index(places[at][0]), *sort_place(*places[at][1:3]), at))
    pids: dict[tuple[str, str], int] = {}
    pid_of, tid_of = np.zeros(len(places), np.int64), np.zeros(len(places), np.int64)
    for number, at in enumerate(order, 1):
        of_owner, of_process, name, lane = places[at]
        pid = pids.setdefault((of_owner, of_process), len(pids) + 1)
        pid_of[at], tid_of[at] = pid, number
        if number == 1 or pid != pid_of[order[number - 2]]:
            writer.write_process(pid, name_process(of_owner, of_process), pid)
        writer.write_thread(pid, number, name_overlapping(name, lane), number)
    return pid_of[row.reshape(-1)], tid_of[row.reshape(-1)]


def _find_lanes(table: pa.Table) -> Int64s:
    """Return a lane for each span: 0 if the span nests on its thread, another number if it overlaps without nesting.

    A viewer drops spans that overlap without nesting on one row.
    """
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
            lanes[rows] = spread_overlapping(starts[rows].tolist(), ends[rows].tolist())
    return lanes


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
