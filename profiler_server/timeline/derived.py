"""Tracks that are derived from tables other than `slices`, and tracks of the device, in one Arrow file of a cache.

In light mode, the timeline consists of derived slices. They also show the steps outside of detailed windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format import timeline_rows
from collector.format.run import RankRun
from profiler_server.analysis.device.slices import count_parents
from profiler_server.analysis.steps.interruptions import explain_windows, read_interruptions
from profiler_server.analysis.tables import find_sound
from profiler_server.facts.steps import Kind
from profiler_server.timeline.device import DEVICE_ROWS, DeviceSlices
from profiler_server.timeline.sources import BATCH_ROWS, Batch, Track, as_batch

_STEPS_ORDER, _WINDOWS_ORDER, _INTERRUPTIONS_ORDER, _COLLECTIVES_ORDER, _RANGES_ORDER = 0, 2, 3, 5, 1_000_000
_STAGES_ORDER = 2_000_000_000

DERIVED_SCHEMA = pa.schema(
    [
        ("track", pa.int32()),
        ("depth", pa.int32()),
        ("start_ns", pa.int64()),
        ("duration_ns", pa.int64()),
        ("name", pa.dictionary(pa.int32(), pa.string())),
        ("category", pa.dictionary(pa.int32(), pa.string())),
        ("step", pa.int64()),
        ("table", pa.dictionary(pa.int32(), pa.string())),
        ("row", pa.int64()),
    ]
)
"""Columns of derived slices. `table` and `row` name the row of the run that a slice stands for."""


@dataclass(frozen=True)
class Derived:
    """Derived tracks, their slices in start order, and the tracks of the trace that these derived tracks replace."""

    tracks: tuple[Track, ...]
    slices: pa.Table
    superseded: tuple[int, ...]


def derive_slices(rank: RankRun, tracks: list[Track], number: int) -> Derived:
    """Return slices derived from the tables other than `slices`. New tracks are numbered from `number` on.

    A missing or damaged table adds nothing.
    """
    made: list[Track] = []
    pieces: list[pa.Table] = []
    superseded: list[int] = []
    for kind, build in _BUILDERS:
        new_tracks, slices = build(rank, number)
        if slices.num_rows:
            superseded += [track.id for track in tracks if kind and track.kind == kind]
            made += new_tracks
            pieces.append(slices)
            number += len(new_tracks)
    whole = pa.concat_tables([DERIVED_SCHEMA.empty_table(), *pieces]).unify_dictionaries().combine_chunks()
    order = pc.sort_indices(whole, sort_keys=[("start_ns", "ascending")])
    return Derived(tuple(made), whole.take(order), tuple(superseded))


Laid = tuple[list[Track], pa.Table]


def _read(rank: RankRun, table: str, columns: Sequence[str]) -> pa.Table:
    return find_sound(rank, table, columns).unify_dictionaries().combine_chunks()


def _derive(
    table: str, columns: Sequence[str], place: Callable[[pa.Table], timeline_rows.Placed], order: int
) -> Callable[[RankRun, int], Laid]:

    def build(rank: RankRun, number: int) -> Laid:
        data = _read(rank, table, columns)
        return _lay_out(data, table, place(data), order, number) if data.num_rows else _nothing()

    return build


def _nothing() -> Laid:
    return [], DERIVED_SCHEMA.empty_table()


def _derive_windows(rank: RankRun, number: int) -> Laid:
    found = explain_windows(rank.manifest)
    if not found:
        return _nothing()
    starts, ends = ([getattr(entry.window, name) for entry in found] for name in ("start_ns", "end_ns"))
    lengths = [max(end - start, 0) for start, end in zip(starts, ends, strict=True)]
    data = pa.table({"start_ns": pa.array(starts, pa.int64()), "duration_ns": pa.array(lengths, pa.int64())})
    name = pa.array([f"Detailed window, {entry.text}" for entry in found])
    track = Track(number, "range", "Detailed windows", timeline_rows.TRAINING, _WINDOWS_ORDER)
    return [track], _table(data, "", name, _constant("overhead", data.num_rows), number)


def _derive_interruptions(rank: RankRun, number: int) -> Laid:
    """Return up to two tracks of interruptions: one for checkpoints and validation, and one for compilations."""
    found = read_interruptions(rank)
    plans: tuple[tuple[str, str, tuple[Kind, ...]], ...] = (
        ("Checkpoints, validation", "annotation", ("checkpoint", "validation")),
        ("torch.compile", "overhead", ("compile", "recompile")),
    )
    names = [f"{held.label}: {held.reason}" if held.reason else held.label for held in found.held]
    tracks: list[Track] = []
    pieces = [DERIVED_SCHEMA.empty_table()]
    for title, category, kinds in plans:
        rows = found.of_kind(*kinds)
        if not len(rows.which):
            continue
        track = Track(number + len(tracks), "range", title, timeline_rows.TRAINING, _INTERRUPTIONS_ORDER + len(tracks))
        data = pa.table({"start_ns": rows.start_ns, "duration_ns": rows.duration_ns})
        name = pa.array(names, pa.string()).take(pa.array(rows.which))
        pieces.append(_table(data, "", name, _constant(category, data.num_rows), track.id))
        tracks.append(track)
    return tracks, pa.concat_tables(pieces)


def _derive_collectives(rank: RankRun, number: int) -> Laid:
    data = _read(rank, "collectives", timeline_rows.COLLECTIVE_COLUMNS)
    rows = np.flatnonzero(pc.is_valid(data["held_ns"]).to_numpy())
    data = timeline_rows.select_light(data).combine_chunks()
    if not data.num_rows:
        return _nothing()
    placed = timeline_rows.place_collectives(data)
    tracks, slices = _lay_out(data, "collectives", placed, _COLLECTIVES_ORDER, number)
    return tracks, slices.set_column(slices.column_names.index("row"), DERIVED_SCHEMA.field("row"), pa.array(rows))


def _derive_ranges(rank: RankRun, number: int) -> Laid:
    data = _read(rank, "ranges", timeline_rows.RANGE_COLUMNS)
    if not data.num_rows:
        return _nothing()
    tracks, table = _lay_out(data, "ranges", timeline_rows.place_ranges(data), _RANGES_ORDER, number)
    depth = pa.array(count_parents(data["id"].to_numpy(), pc.fill_null(data["parent"], -1).to_numpy()), pa.int32())
    return tracks, table.set_column(1, DERIVED_SCHEMA.field("depth"), depth)


_BUILDERS = (
    ("step", _derive("steps", timeline_rows.STEP_COLUMNS, timeline_rows.place_steps, _STEPS_ORDER)),
    ("phase", _derive("phases", timeline_rows.PHASE_COLUMNS, timeline_rows.place_phases, _STEPS_ORDER + 1)),
    ("", _derive_windows),
    ("", _derive_interruptions),
    ("", _derive_collectives),
    ("", _derive_ranges),
    ("", _derive("stages", timeline_rows.STAGE_COLUMNS, timeline_rows.place_stages, _STAGES_ORDER)),
)
"""Functions that make tracks. Each has the kind of the trace's tracks that its tracks replace, empty for none."""


def _lay_out(data: pa.Table, table: str, placed: timeline_rows.Placed, order: int, number: int) -> Laid:
    tracks = [Track(number + i, row.kind, row.name, row.process, order + i) for i, row in enumerate(placed.rows)]
    return tracks, _table(data, table, placed.name, placed.category, placed.row + np.int32(number))


def _constant(text: str, size: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, np.int32)), pa.array([text], pa.string()))


def _table(data: pa.Table, table: str, name: pa.Array, category: pa.Array, track: int | np.ndarray) -> pa.Table:
    size = data.num_rows
    tracks = np.full(size, track, np.int32) if isinstance(track, int) else track
    step = data["step"] if "step" in data.column_names else pa.nulls(size, pa.int64())
    columns = [
        pa.array(tracks, pa.int32()),
        pa.array(np.zeros(size, np.int32)),
        data["start_ns"],
        data["duration_ns"],
        _encode(name),
        _encode(category),
        step,
        _constant(table, size),
        pa.array(np.arange(size)),
    ]
    return pa.table(dict(zip(DERIVED_SCHEMA.names, columns, strict=True)), schema=DERIVED_SCHEMA)


def _encode(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    whole = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    encoded = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    return encoded.cast(DERIVED_SCHEMA.field("name").type)


DERIVED_FILE = "derived.arrow"


class DerivedWriter:
    """A writer of derived slices. `rows` has the number of slices in each batch.

    `device_rows` are the indexes in `DEVICE_ROWS` of the rows with slices. Row i is the track `device_track` + i.
    """

    def __init__(self, path: Path, slices: pa.Table, device_track: int) -> None:
        self.rows: list[int] = []
        self.device_rows: set[int] = set()
        self._device_track = device_track
        # A file has one dictionary for all batches, so the dictionary holds the device names before the first slice.
        self._names = _Dictionary(slices, "name", [row.name for row in DEVICE_ROWS])
        self._categories = _Dictionary(slices, "category", [row.category for row in DEVICE_ROWS])
        self._tables = _Dictionary(slices, "table", [""])
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, DERIVED_SCHEMA)
        for batch in slices.to_batches(BATCH_ROWS):
            self._write_tables(batch)

    def write_device(self, slices: DeviceSlices) -> None:
        """Append slices of the device. The slices of a row must come in start order."""
        size = slices.found.starts.size
        if not size:
            return
        self.device_rows.add(slices.row)
        row = DEVICE_ROWS[slices.row]
        columns = {
            "track": pa.array(np.full(size, self._device_track + slices.row, np.int32)),
            "depth": pa.array(np.zeros(size, np.int32)),
            "start_ns": pa.array(slices.found.starts),
            "duration_ns": pa.array(slices.found.ends - slices.found.starts),
            "name": self._names.constant(row.name, size),
            "category": self._categories.constant(row.category, size),
            "step": pa.nulls(size, pa.int64()),
            "table": self._tables.constant("", size),
            "row": pa.nulls(size, pa.int64()),
        }
        self._append(columns)

    def _write_tables(self, rows: pa.RecordBatch) -> None:
        columns = {name: rows.column(name) for name in DERIVED_SCHEMA.names}
        for name, dictionary in (("name", self._names), ("category", self._categories), ("table", self._tables)):
            columns[name] = dictionary.extend(columns[name])
        self._append(columns)

    def _append(self, columns: dict[str, pa.Array]) -> None:
        batch = pa.record_batch([columns[name] for name in DERIVED_SCHEMA.names], schema=DERIVED_SCHEMA)
        self._writer.write_batch(batch)
        self.rows.append(batch.num_rows)

    def __enter__(self) -> DerivedWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._writer.close()
        self._sink.close()


class _Dictionary:
    """The dictionary of a text column: the distinct texts of the column, followed by the texts in `more`."""

    def __init__(self, slices: pa.Table, column: str, more: list[str]) -> None:
        whole = slices[column].combine_chunks()
        own = whole.dictionary if isinstance(whole, pa.DictionaryArray) else whole.chunk(0).dictionary
        self._first = len(own)
        self._more = more
        self.values = pa.concat_arrays([own, pa.array(more, pa.string())])

    def extend(self, column: pa.DictionaryArray) -> pa.DictionaryArray:
        return pa.DictionaryArray.from_arrays(column.indices, self.values)

    def constant(self, value: str, size: int) -> pa.DictionaryArray:
        code = self._first + self._more.index(value)
        return pa.DictionaryArray.from_arrays(pa.array(np.full(size, code, np.int32)), self.values)


def read_derived(
    folder: Path, rows: Sequence[int], is_wanted: Callable[[int, int], bool] = lambda first, count: True
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the derived slices of a cache in number order, as batches. Each comes with the number of its first slice.

    `rows` has the number of slices in each batch. A batch is skipped unread if `is_wanted(first, count)` is false.
    """
    first = 0
    with pa.OSFile(str(folder / DERIVED_FILE)) as source:
        file = pa.ipc.open_file(source)
        for number, count in enumerate(rows):
            if is_wanted(first, count):
                yield first, file.get_batch(number)
            first += count


def read_derived_batches(folder: Path, rows: Sequence[int], first_sid: int) -> Iterator[Batch]:
    for first, raw in read_derived(folder, rows):
        yield as_batch(raw, first_sid + first)


def read_derived_row(folder: Path, rows: Sequence[int], number: int) -> dict[str, Any] | None:
    """Return the derived slice in row `number` of the derived file; None if the file has fewer rows."""
    for first, raw in read_derived(folder, rows, lambda first, count: first <= number < first + count):
        found: dict[str, Any] = raw.slice(number - first, 1).to_pylist()[0]
        return found
    return None
