"""The slices of the detailed steps as arrays, for the graph: threads that launch work, their calls, and device work."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from collector.format.intervals import Ints, Mask
from collector.format.run import RankRun
from collector.format.schema.errors import TableMissingError
from collector.format.steps import read_integers
from profiler_server.analysis.device.slices import (
    Texts,
    read_slices,
    read_spans,
    read_steps,
    read_stream_tracks,
    read_thread_tracks,
    release_slices,
    to_ints,
)
from profiler_server.analysis.tables import find_places

MOST_ROWS = 100_000
"""The largest number of slices in a replay. A longer window is cut to its last whole steps within this limit."""
_COLUMNS = (
    *("id", "track", "depth", "start_ns", "duration_ns", "name", "category"),
    *("parent", "launched_by", "sequence", "args"),
)
KERNEL, COLLECTIVE, COPY, SET, CALL, OPERATOR, OTHER = range(7)
"""Values of `Window.kind`: device work up to SET, and then work of the host."""
_KINDS = {"kernel": KERNEL, "communication": COLLECTIVE, "memcpy": COPY, "memset": SET}
_HOST_KINDS = {"runtime": CALL, "operator": OPERATOR, "communication": OPERATOR}
_LAUNCHING = re.compile(r"Launch|Memcpy|Memset", re.IGNORECASE)


@dataclass(frozen=True)
class Window:
    """The slices (rows) of some whole steps, ordered by start. References between rows are indexes in these arrays.

    `ids` are the ids of the slices in the trace. `parent` is the slice around a row on its track; `launch` is the call
    that launched device work; both are -1 for none. `name` and `args` are indexes in `names` and `texts`, -1 for none.
    `sequence` is the number of the backward node that an operator makes or runs, -1 for none. `message_bytes` is the
    size of a collective, -1 if unknown. `left_out` is the number of the window's first steps that are left out.
    """

    ids: Ints
    track: Ints
    depth: Ints
    start_ns: Ints
    end_ns: Ints
    kind: Ints
    parent: Ints
    launch: Ints
    name: Ints
    sequence: Ints
    args: Ints
    message_bytes: Ints
    names: tuple[str, ...]
    texts: tuple[str | None, ...]
    step_starts_ns: Ints
    step_ends_ns: Ints
    left_out: int = 0

    @property
    def first_ns(self) -> int:
        return int(self.step_starts_ns[0])

    @property
    def steps(self) -> int:
        return len(self.step_starts_ns)

    @property
    def on_device(self) -> Mask:
        return self.kind <= SET

    @cached_property
    def threads(self) -> tuple[int, ...]:
        """Return the threads that launch device work, ordered by first launch."""
        launches = self.launch[self.on_device & (self.launch >= 0)]
        tracks, first = np.unique(self.track[np.sort(launches)], return_index=True)
        return tuple(int(track) for track in tracks[np.argsort(first)])

    def match(self, pattern: re.Pattern[str]) -> Mask:
        """Return a mask of the rows whose name matches a pattern."""
        passed = [*(pattern.search(text) is not None for text in self.names), False]
        return np.array(passed, bool)[self.name]

    def list_launches(self) -> Mask:
        """Return a mask of the calls that launch device work."""
        found = np.zeros(len(self.ids), bool)
        launches = self.launch[self.on_device]
        found[launches[launches >= 0]] = True
        found |= (self.kind == CALL) & self.match(_LAUNCHING)
        return found


def read_window(rank: RankRun) -> Window | None:
    """Return the detailed steps of a rank's last window; None if no step or no slice was recorded in detail.

    Only the last window is read, because the time between two windows is unknown. Raises as `RankRun.table` does.
    """
    starts, ends = read_steps(rank)
    spans = read_spans(rank, starts, ends)
    data = read_slices(rank, _COLUMNS) if len(spans.starts) else None
    if data is None:
        return None
    inside = (starts >= spans.starts[-1]) & (ends <= spans.ends[-1])
    starts, ends = starts[inside], ends[inside]
    first = _choose_first(to_ints(data["start_ns"]), starts)
    begin, end = int(starts[first]), int(ends[-1])
    at = to_ints(data["start_ns"])
    rows = np.flatnonzero((at >= begin) & (at < end))
    if not len(rows):
        return None
    window = _build(data.take(pa.array(rows)), rank, starts[first:], ends[first:], first)
    del data
    release_slices()
    return window


def _choose_first(at: Ints, starts: Ints) -> int:
    """Return the index of the first step from which on the number of slices is within the limit; the last step if no
    step is.
    """
    counts = len(at) - np.searchsorted(at, starts) if len(at) else np.zeros(len(starts), np.int64)
    fitting = np.flatnonzero(counts <= MOST_ROWS)
    return int(fitting[0]) if len(fitting) else len(starts) - 1


def _build(data: pa.Table, rank: RankRun, starts: Ints, ends: Ints, left_out: int) -> Window:
    streams = np.array(list(read_stream_tracks(rank)), np.int64)
    threads = np.array(read_thread_tracks(rank), np.int64)
    track, ids = to_ints(data["track"]), to_ints(data["id"])
    categories = Texts(data["category"])
    work = np.where(np.isin(track, streams), categories.number(_KINDS), -1)
    host = np.where(np.isin(track, threads), categories.number(_HOST_KINDS), -1)
    kind = np.where(work >= 0, work, np.where(host >= 0, host, OTHER))
    at = to_ints(data["start_ns"])
    columns = {name: data[name].combine_chunks() for name in ("name", "args")}
    return Window(
        ids=ids,
        track=track,
        depth=to_ints(data["depth"]),
        start_ns=at,
        end_ns=at + to_ints(data["duration_ns"]),
        kind=kind,
        parent=find_places(ids, to_ints(data["parent"].fill_null(-1))),
        launch=np.where(work >= 0, find_places(ids, to_ints(data["launched_by"].fill_null(-1))), -1),
        name=_read_codes(columns["name"]),
        sequence=to_ints(data["sequence"].fill_null(-1)),
        args=_read_codes(columns["args"]),
        message_bytes=_read_message_bytes(rank, kind, at),
        names=tuple(columns["name"].dictionary.to_pylist()),
        texts=tuple(columns["args"].dictionary.to_pylist()),
        step_starts_ns=starts,
        step_ends_ns=ends,
        left_out=left_out,
    )


def _read_message_bytes(rank: RankRun, kind: Ints, start_ns: Ints) -> Ints:
    found = np.full(len(kind), -1, np.int64)
    collectives = np.flatnonzero(kind == COLLECTIVE)
    try:
        table = rank.table("collectives", ["start_ns", "bytes", "on_device"]) if len(collectives) else None
    except TableMissingError:
        table = None
    if table is None:
        return found
    table = table.filter(table["on_device"])
    begins, sizes = read_integers(table, "start_ns"), read_integers(table, "bytes", -1)
    known = dict(zip(begins.tolist(), sizes.tolist(), strict=True))
    found[collectives] = [known.get(at, -1) for at in start_ns[collectives].tolist()]
    return found


def _read_codes(column: pa.DictionaryArray) -> Ints:
    return np.asarray(column.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
