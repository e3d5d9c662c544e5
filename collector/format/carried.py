"""Pack the tables of a run into an exported trace file, so that an import restores exactly the same tables.

The tables are the first key of the file. The trace events follow in other keys, so any other viewer can read the file.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from collector.format.intervals import Ints
from collector.format.parts import read_columns
from collector.format.schema.columns import SCHEMA_VERSION
from collector.format.schema.errors import RunError
from collector.format.schema.manifest import Loader, RankManifest, decode_manifest, encode_manifest
from collector.format.schema.tables import TABLES
from collector.format.stored_files import arrow_schema

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from collector.format.run import RankRun, Run

MARK = "stepscope"
START = b'{"stepscope":'
END = b',\n"traceEvents":['
MOST_BYTES = 32 << 20
"""If all tables together are larger, none is included, and the file holds only the events."""
MOST_ROWS = 2_000_000
"""If one table has more rows, no table is included or read back: a few bytes can unpack to any number of rows."""


MOST_MANIFEST_BYTES = 4 << 20
MOST_ENTRIES = 10_000
MOST_CHARACTERS = 4_096
MOST_PROCESSES = 4_096
"""Limits on a rank's data in a stranger's file: no recording comes near them."""


class UnreadableError(ValueError):
    """The tables in a trace file are damaged or of a newer version; its events can still be read."""


class Window(Protocol):
    """A section of a rank's recording. `count` is its number of steps, 0 if it is empty. `holds` returns a mask of the
    rows inside it, given their start, end (ns) and step (-1 for none)."""

    @property
    def count(self) -> int: ...

    def holds(self, start: Ints, end: Ints, step: Ints) -> npt.NDArray[np.bool_]: ...


def carry_tables(
    run: Run, ranks: list[RankRun], find_window: Callable[[RankRun], Window | None] = lambda _: None
) -> dict[str, Any]:
    """Return the tables of the ranks as one key and value for a trace file; {} if they are too large, or if a table is
    unreadable.

    `find_window` returns the window to which a rank's tables are cut, None for the whole rank. A rank is left out if
    its window is empty, or if `find_window` raises RunError.
    """
    found = {}
    for rank in ranks:
        try:
            window = find_window(rank)
        except RunError:
            continue
        if window is not None and not window.count:
            continue
        tables = _read_tables(rank, window)
        if tables is None:
            return {}
        whole = window is None and not rank.manifest.is_trace
        found[rank.rank] = (replace(rank.manifest, recorded_whole=whole), tables)
    packed = _pack(run.manifest.epoch_unix_ns, run.manifest.world_size, found)
    return {MARK: packed} if packed else {}


def _read_tables(rank: RankRun, window: Window | None) -> dict[str, pa.Table] | None:
    tables: dict[str, pa.Table] = {}
    try:
        if any(rank.count_rows(name) > MOST_ROWS for name in TABLES):
            return None
        for name in TABLES:
            if rank.status(name).state in ("there", "empty"):
                tables[name] = _cut(rank.table(name), window)
    except (RunError, OSError, pa.ArrowException):
        return None
    return tables


def _cut(table: pa.Table, window: Window | None) -> pa.Table:
    """Return the rows inside a window: by their step, or by their time if they have no step."""
    if window is None or not {"step", "start_ns"} & set(table.column_names):
        return table
    rows = table.num_rows
    step = table["step"].fill_null(-1).to_numpy() if "step" in table.column_names else np.full(rows, -1, np.int64)
    # A row without a time lies after everything, so that only its step counts.
    never = np.full(rows, np.iinfo(np.int64).max - 1)
    start = table["start_ns"].to_numpy() if "start_ns" in table.column_names else never
    length = table["duration_ns"].fill_null(0).to_numpy() if "duration_ns" in table.column_names else 0
    return table.filter(pa.array(window.holds(start, start + np.maximum(length, 0), step)))


def _pack(epoch_unix_ns: int, world_size: int, ranks: Mapping[int, tuple[RankManifest, Mapping[str, pa.Table]]]) -> Any:
    carried: dict[str, Any] = {}
    size = 0
    for rank, (manifest, tables) in ranks.items():
        packed: dict[str, str] = {}
        for name, table in tables.items():
            sink = pa.BufferOutputStream()
            pq.write_table(table, sink, compression="zstd")
            packed[name] = base64.b64encode(sink.getvalue()).decode()
            size += len(packed[name])
            if size > MOST_BYTES:
                return None
        carried[str(rank)] = {"manifest": encode_manifest(manifest), "tables": packed}
    return {"version": SCHEMA_VERSION, "epoch_unix_ns": epoch_unix_ns, "world_size": world_size, "ranks": carried}


class _CarriedRank(msgspec.Struct):
    manifest: str
    tables: dict[str, str]


class Carried(msgspec.Struct):
    """The packed tables and manifests of an export, as they stand in the file. `ranks` maps a rank's number as text."""

    version: int
    epoch_unix_ns: int
    world_size: int
    ranks: dict[str, _CarriedRank]

    def unpack(self) -> Iterator[tuple[RankManifest, dict[str, pa.Table]]]:
        """Yield the manifest and the tables of each rank. Raises UnreadableError, or the errors of `decode_manifest`."""
        for entry in self.ranks.values():
            try:
                manifest = _decode_manifest(entry.manifest)
                tables = {name: _unpack(name, text) for name, text in entry.tables.items() if name in TABLES}
            except (pa.ArrowException, binascii.Error, OSError, ValueError, TypeError, RecursionError) as error:
                raise UnreadableError(str(error)) from None
            yield manifest, tables


def decode(text: bytes) -> Carried:
    """Read the packed tables from the text between START and END in an export. Raises UnreadableError."""
    try:
        carried = msgspec.json.decode(text, type=Carried)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableError(str(error)) from None
    if carried.version > SCHEMA_VERSION or not carried.ranks:
        raise UnreadableError(f"version {carried.version} is newer than {SCHEMA_VERSION}, or without ranks")
    return carried


def _decode_manifest(text: str) -> RankManifest:
    """Parse a stranger's manifest within limits. Raises ValueError, TypeError, or as `decode_manifest`."""
    if len(text) > MOST_MANIFEST_BYTES:
        raise ValueError(f"a manifest of {len(text)} characters")
    msgspec.json.decode(text)  # a number such as NaN is no JSON
    manifest = decode_manifest(RankManifest, text, "the carried manifest")
    check_manifest(manifest)
    return manifest


def check_manifest(manifest: RankManifest) -> None:
    """Raise ValueError if a manifest from an untrusted file has more entries, texts or processes than any recording."""
    for entries in (manifest.devices, manifest.signals, manifest.windows, manifest.warnings, manifest.loaders):
        if len(entries) > MOST_ENTRIES:
            raise ValueError(f"{len(entries)} entries of one kind")
        for entry in entries:
            _check_entry(entry)
    _check_entry(manifest.overhead)
    for cores in (manifest.cpu_count, manifest.usable_cores, manifest.torch_threads):
        _check_count(cores)


def _check_entry(entry: DataclassInstance) -> None:
    fields = asdict(entry)
    if any(isinstance(value, str) and len(value) > MOST_CHARACTERS for value in fields.values()):
        raise ValueError(f"a text of more than {MOST_CHARACTERS} characters")
    if isinstance(entry, Loader):
        _check_count(entry.num_workers)
        _check_count(entry.prefetch_factor)


def _check_count(count: float | None) -> None:
    if count is not None and not 0 <= count <= MOST_PROCESSES:
        raise ValueError(f"{count} processes")


def _unpack(name: str, text: str) -> pa.Table:
    file = pq.ParquetFile(pa.BufferReader(base64.b64decode(text, validate=True)), pre_buffer=False)
    if file.metadata.num_rows > MOST_ROWS:
        raise ValueError(f"the table {name} has {file.metadata.num_rows} rows")
    return read_columns(file, Path(name), name, arrow_schema(name))
