"""The derived slices of a cache in one Arrow file: those of the tables, then those of the device, batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from profiler_server.timeline.derived import DERIVED_SCHEMA
from profiler_server.timeline.device import DEVICE_ROWS, DeviceSlices
from profiler_server.timeline.sources import BATCH_ROWS, Batch, as_batch

DERIVED_FILE = "derived.arrow"


class DerivedWriter:
    """Writes derived slices; `rows` are those of each batch. `device_rows` are the rows of `DEVICE_ROWS` that have slices, on
    tracks from `device_track`."""

    def __init__(self, path: Path, slices: pa.Table, device_track: int) -> None:
        self.rows: list[int] = []
        self.device_rows: set[int] = set()
        self._device_track = device_track
        # A file has one dictionary for all its batches: it holds the names of the device before any slice has one.
        self._names = _Dictionary(slices, "name", [row.name for row in DEVICE_ROWS])
        self._categories = _Dictionary(slices, "category", [row.category for row in DEVICE_ROWS])
        self._tables = _Dictionary(slices, "table", [""])
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, DERIVED_SCHEMA)
        for batch in slices.to_batches(BATCH_ROWS):
            self._write_tables(batch)

    def write_device(self, slices: DeviceSlices) -> None:
        """Append slices of the device; those of a row come in start order."""
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
    """The distinct values of a column with some more after them."""

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
    """Yield the derived slices of a cache in the order of their numbers, each batch with the number of its first.

    `rows` are those of each batch. One that is not wanted is not read.
    """
    first = 0
    with pa.OSFile(str(folder / DERIVED_FILE)) as source:
        file = pa.ipc.open_file(source)
        for number, count in enumerate(rows):
            if is_wanted(first, count):
                yield first, file.get_batch(number)
            first += count


def read_derived_batches(folder: Path, rows: Sequence[int], first_sid: int) -> Iterator[Batch]:
    """Yield the derived slices as the columns that a timeline is made of, numbered from `first_sid`."""
    for first, raw in read_derived(folder, rows):
        yield as_batch(raw, first_sid + first)


def read_derived_row(folder: Path, rows: Sequence[int], number: int) -> dict[str, Any] | None:
    """Return one derived slice, None if there is none of that number."""
    for first, raw in read_derived(folder, rows, lambda first, count: first <= number < first + count):
        found: dict[str, Any] = raw.slice(number - first, 1).to_pylist()[0]
        return found
    return None
