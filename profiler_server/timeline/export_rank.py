"""One rank of an exported trace: tracks as threads, groups as processes, and slices, flows and counters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Ints, unite
from collector.format.run import RankRun
from collector.format.steps import is_kind
from collector.format.timeline_rows import find_worker
from collector.traces.writing import (
    EventWriter,
    SliceColumns,
    inside_objects,
    name_process,
    write_counter,
    write_flows,
    write_slices,
)
from profiler_server.analysis.ranks.one_clock import RankClock
from profiler_server.format import format_number_of
from profiler_server.timeline.derived import read_derived
from profiler_server.timeline.details import list_groups
from profiler_server.timeline.export_threads import spread_over_threads
from profiler_server.timeline.pyramid import Int32s
from profiler_server.timeline.sources import BATCH_ROWS, Track, naming_damage
from profiler_server.timeline.store import Timeline

_GROUPS_PER_RANK = 1000
_COLUMNS = [
    "id",
    "track",
    "depth",
    "start_ns",
    "duration_ns",
    "name",
    "category",
    "step",
    "correlation",
    "launched_by",
    "args",
]


@dataclass(frozen=True)
class StepWindow:
    """The window to write: the union of the chosen steps' times in ns, or one time range, which has no step numbers."""

    ranges: tuple[tuple[int, int], ...]
    start: Ints
    end: Ints
    count: int
    name: str = "the chosen steps"

    @classmethod
    def between(cls, begin_ns: int, end_ns: int) -> StepWindow:
        """Return the window of a time range since the run's epoch."""
        return cls((), np.array([begin_ns]), np.array([end_ns]), 1, "the chosen stretch of time")

    @classmethod
    def find(cls, rank: RankRun, ranges: tuple[tuple[int, int], ...] | None) -> StepWindow | None:
        """Return the window of the training steps with numbers in `ranges`; None for all steps. Raises RunError."""
        if ranges is None:
            return None
        steps = rank.table("steps", columns=["step", "start_ns", "duration_ns", "kind"])
        step, start = steps["step"].to_numpy(), steps["start_ns"].to_numpy()
        chosen = _in_ranges(step, ranges) & is_kind(steps, "train").to_numpy()
        found = unite(start[chosen], (start + steps["duration_ns"].to_numpy())[chosen])
        return cls(ranges, found.starts, found.ends, int(chosen.sum()))

    def holds(self, start: Ints, end: Ints, step: Ints) -> npt.NDArray[np.bool_]:
        """Return a mask of the slices that belong to the steps or run during them. An unknown `step` is -1."""
        after = np.searchsorted(self.end, start, "right")
        begins = np.append(self.start, np.iinfo(np.int64).max)[after]
        known: npt.NDArray[np.bool_] = (np.maximum(end, start + 1) > begins) | _in_ranges(step, self.ranges)
        return known


def _in_ranges(values: Ints, ranges: tuple[tuple[int, int], ...]) -> npt.NDArray[np.bool_]:
    found = np.zeros(values.size, bool)
    for first, last in ranges:
        found |= (values >= first) & (values <= last)
    return found


@dataclass(frozen=True)
class Shown:
    """The tracks to write, by their `kinds` and by their DataLoader `workers`; None selects all."""

    kinds: frozenset[str] | None = None
    workers: frozenset[int] | None = None

    @property
    def has_counters(self) -> bool:
        return self.kinds is None or "stage" in self.kinds

    def holds(self, track: Track) -> bool:
        if self.kinds is not None and track.kind not in self.kinds:
            return False
        return self.workers is None or track.kind != "worker" or find_worker(track.group) in self.workers


class RankExport:
    """A writer of one rank's trace. After `write`, `slices` and `flows` are the numbers of slices and flows written.

    `left_out` has a sentence for each omission. With a clock, times are on that clock, and all tracks belong to one
    process. Without a clock, each group of tracks is a process.
    """

    def __init__(
        self, timeline: Timeline, steps: StepWindow | None, shown: Shown, clock: RankClock | None = None
    ) -> None:
        self.slices = self.flows = self._outside = self._unlinked = 0
        self.left_out: list[str] = []
        self._timeline = timeline
        self._steps = steps
        self._shown = shown
        self._clock = clock
        index = timeline.index
        groups = dict.fromkeys(t.group for t in (*index.tracks, *index.counters))
        self._groups = {group: 0 if clock else place for place, group in enumerate(groups)}
        self._tracks = [t for t in index.tracks if shown.holds(t)]
        # The thread number of each slice, 0 for slices that are not written.
        self._threads = spread_over_threads(timeline, {t.id for t in self._tracks}, _find_stretch(timeline, steps))
        size = max((t.id for t in index.tracks), default=0) + 1
        self._pid_of_track = np.zeros(size, np.int64)
        for track in index.tracks:
            self._pid_of_track[track.id] = self._pid(track)

    def write(self, writer: EventWriter) -> None:
        """Write all data of the rank. Raises RunError, or OSError from the sink."""
        self._write_names(writer)
        launches = _Launches(self._timeline, self._threads.number)
        for raw, first in self._read_slices():
            self._write_batch(writer, raw, first, launches)
        self._write_derived(writer)
        shown = {track.id for track in self._tracks}
        every = sum(lane.count for lane in self._timeline.index.lanes if lane.track in shown)
        self._outside = every - self.slices
        if self._shown.has_counters:
            self._write_counters(writer)
        self._tell()

    def _pid(self, track: Track) -> int:
        return self._timeline.rank.rank * _GROUPS_PER_RANK + self._groups[track.group] + 1

    def _place(self, times: Ints) -> Ints:
        return self._clock.place(times) if self._clock else times

    def _name(self, track: Track, name: str) -> str:
        return name_process(track.group, name) if self._clock else name

    def _write_names(self, writer: EventWriter) -> None:
        rank = self._timeline.rank.rank
        counters = self._timeline.index.counters if self._shown.has_counters else ()
        shown = {self._pid(track): "" if self._clock else track.group for track in (*self._tracks, *counters)}
        for pid in sorted(shown):
            writer.write_process(pid, name_process(f"rank {rank}", shown[pid]), pid)
        for place, track in enumerate(self._tracks):
            for thread, name in self._threads.names(track):
                writer.write_thread(self._pid(track), thread, self._name(track, name), place)

    def _read_slices(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        for path, file, group, first, rows in list_groups(self._timeline, "slices"):
            if not self._holds(first, rows):
                continue
            columns = [name for name in _COLUMNS if name in file.schema_arrow.names]
            with naming_damage(path):
                for raw in file.iter_batches(BATCH_ROWS, [group], columns, use_threads=False):
                    yield raw, first
                    first += raw.num_rows

    def _holds(self, first: int, rows: int) -> bool:
        return bool(self._threads.number[first : first + rows].any())

    def _write_batch(self, writer: EventWriter, raw: pa.RecordBatch, first: int, launches: _Launches) -> None:
        thread = self._threads.number[first : first + raw.num_rows]
        start = raw.column("start_ns").to_numpy()
        end = start + np.maximum(raw.column("duration_ns").to_numpy(), 0)
        within = thread > 0
        if self._steps is not None:
            within &= self._steps.holds(start, end, _fill(raw.column("step"), -1))
        kept = np.flatnonzero(within)
        if not kept.size:
            return
        # Of slices with the same start the outer slice comes first. Otherwise readers nest them in reverse.
        depth = raw.column("depth").to_numpy()
        kept = kept[np.lexsort((depth[kept], start[kept]))]
        chosen = raw.take(pa.array(kept))
        pid = self._pid_of_track[raw.column("track").to_numpy()[kept]]
        begins, ends = self._place(start[kept]), self._place(end[kept])
        columns = SliceColumns(
            pid,
            thread[kept],
            begins,
            ends - begins,
            _as_dictionary(chosen.column("name")),
            _as_dictionary(chosen.column("category")),
            _join_args(chosen, self._timeline.rank.rank),
        )
        write_slices(writer, columns)
        self.slices += kept.size
        self._write_flows(writer, chosen, (pid, thread[kept], begins, first + kept), launches)

    def _write_flows(
        self,
        writer: EventWriter,
        chosen: pa.RecordBatch,
        place: tuple[npt.NDArray[np.integer], ...],
        launches: _Launches,
    ) -> None:
        if "launched_by" not in chosen.schema.names:
            return
        launched_by = _fill(chosen.column("launched_by"), -1)
        rows = np.flatnonzero(launched_by >= 0)
        found = launches.find(launched_by[rows])
        linked = found >= 0
        linked[linked] = self._threads.number[launches.sid[found[linked]]] > 0
        self._unlinked += int((~linked).sum())
        rows, found = rows[linked], found[linked]
        if not rows.size:
            return
        pid, thread, start, own = (column[rows] for column in place)
        flow_id = self._timeline.rank.rank * (1 << 32) + own
        from_pid = self._pid_of_track[launches.track[found]]
        source: dict[str, npt.NDArray[Any]] = {
            "pid": from_pid,
            "tid": self._threads.number[launches.sid[found]],
            "start": self._place(launches.start[found]),
            "id": flow_id,
        }
        write_flows(writer, "s", source)
        write_flows(writer, "f", {"pid": pid, "tid": thread, "start": start, "id": flow_id})
        self.flows += rows.size

    def _write_derived(self, writer: EventWriter) -> None:
        index = self._timeline.index
        wanted = read_derived(
            self._timeline.folder, index.derived_rows, lambda first, rows: self._holds(index.table_rows + first, rows)
        )
        for first, raw in wanted:
            self._write_batch(writer, raw, index.table_rows + first, _NO_LAUNCHES)

    def _write_counters(self, writer: EventWriter) -> None:
        origin = self._timeline.index.origin_ns
        for number, track in enumerate(self._timeline.index.counters):
            time, value = self._timeline.counters.series(number)
            time = time + origin
            if self._steps is not None:
                kept = self._steps.holds(time, time, np.full(time.size, -1))
                time, value = time[kept], value[kept]
            points = self._place(time), pa.array(value)
            write_counter(writer, self._pid(track), self._name(track, track.name), track.unit, points)

    def _tell(self) -> None:
        if self._outside:
            self.left_out.append(
                f"{format_number_of(self._outside, 'slice')} outside of {self._steps.name if self._steps else ''}"
            )
        every = Shown(self._shown.kinds)
        hidden = [track for track in self._timeline.index.tracks if not every.holds(track)]
        if hidden:
            self.left_out.append(f"{format_number_of(len(hidden), 'track')} not shown at the chosen detail")
        if self._unlinked:
            self.left_out.append(f"{format_number_of(self._unlinked, 'link')} to launches that are not in it")
        windows = self._timeline.rank.manifest.windows
        if windows and not self._timeline.rank.manifest.is_trace:
            spans = ", ".join(f"{w.first_step}-{w.last_step}" for w in windows[:20])
            self.left_out.append(f"operators and kernels were recorded in the detailed windows only (steps {spans})")


def _find_stretch(timeline: Timeline, steps: StepWindow | None) -> tuple[int, int] | None:
    if steps is None or steps.ranges or not steps.start.size:
        return None
    origin = timeline.index.origin_ns
    return int(steps.start[0]) - origin, int(steps.end[-1]) - origin


class _Launches:
    """An index of slices by id, to find where flows start. Row groups without a written slice are not in it."""

    def __init__(self, timeline: Timeline | None, threads: Int32s) -> None:
        empty = np.zeros(0, np.int64)
        pieces = [(empty, empty, empty, empty)]
        for _, file, group, first, rows in list_groups(timeline, "slices") if timeline is not None else ():
            if not threads[first : first + rows].any():
                continue
            data = file.read_row_group(group, columns=["id", "start_ns", "track"], use_threads=False)
            columns = (data[name].to_numpy().astype(np.int64) for name in ("id", "start_ns", "track"))
            pieces.append((*columns, np.arange(first, first + rows)))
        self.id, self.start, self.track, self.sid = map(np.concatenate, zip(*pieces, strict=True))
        self._order = None if (self.id[1:] > self.id[:-1]).all() else np.argsort(self.id, kind="stable")

    def find(self, wanted: Ints) -> Ints:
        """Return for each wanted slice id its row in the columns, or -1 for an id that is not in the index."""
        if not self.id.size or not wanted.size:
            return np.full(wanted.size, -1, np.int64)
        at = np.searchsorted(self.id, wanted, sorter=self._order)
        at = np.minimum(at, self.id.size - 1)
        number = at if self._order is None else self._order[at]
        return np.where(self.id[number] == wanted, number, -1)


_NO_LAUNCHES = _Launches(None, np.zeros(0, np.int32))


def _fill(column: pa.Array, value: int) -> Ints:
    filled: Ints = column.fill_null(value).to_numpy(zero_copy_only=False)
    return filled


def _as_dictionary(column: pa.Array) -> pa.DictionaryArray:
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()


def _join_args(chosen: pa.RecordBatch, rank: int) -> pa.Array:
    """Return rank, step, correlation and the trace's own arguments as JSON, without the outer braces."""
    pieces: list[Any] = [pa.array([f'"rank":{rank}'] * chosen.num_rows)]
    for name in ("step", "correlation"):
        if name in chosen.schema.names:
            text = chosen.column(name).cast(pa.string())
            pieces.append(pc.binary_join_element_wise(f',"{name}":', text, ""))
    if "args" in chosen.schema.names:
        pieces.append(pc.binary_join_element_wise(",", inside_objects(_as_dictionary(chosen.column("args"))), ""))
    return pc.binary_join_element_wise(*(pc.fill_null(piece, "") for piece in pieces), "")
