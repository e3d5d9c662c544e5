"""Write tables to disk as Parquet parts, merge the parts, and read them back as the declared tables."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.format.arrays import encode_texts, from_values
from collector.format.schema.errors import TableBrokenError, TableMissingError
from collector.format.schema.inside import is_plain_file, is_plain_folder, open_inside
from collector.format.schema.layout import table_file, table_parts_folder
from collector.format.schema.removal import ensure_folder, remove_empty, remove_file
from collector.format.schema.writing import replacing, sync_folder, sync_tree
from collector.format.stored_files import (
    arrow_schema,
    borrow,
    check_ranges,
    check_schema,
    is_plain,
    name_damage,
    open_native,
)

ROWS_PER_GROUP = 1 << 17
PARTS_PER_MERGE = 16
PART_NAME = re.compile(r"[0-9]{6,12}(-[0-9]{6,12})?\.parquet")
_LEFT_OVER = re.compile(rf"{PART_NAME.pattern}|\.{PART_NAME.pattern}\.[0-9]+\.[0-9]+\.partial")
MERGED_BYTES = 2 << 20
"""Parts with a larger total size are not merged: merging must not take much memory or time."""


def build_table(table: str, columns: Mapping[str, Any]) -> pa.Table:
    """Build a declared table from columns (lists, numpy or Arrow arrays). A nullable column may be missing; KeyError
    for another missing column or an unknown one."""
    schema = arrow_schema(table)
    unknown = set(columns) - set(schema.names)
    if unknown:
        raise KeyError(f"table {table!r} declares no column {sorted(unknown)}")
    length = max((len(values) for values in columns.values()), default=0)
    arrays = []
    for field in schema:
        if field.name not in columns and not field.nullable:
            raise KeyError(f"table {table!r} needs the column {field.name!r}")
        values = columns.get(field.name)
        arrays.append(pa.nulls(length, field.type) if values is None else _to_arrow(values, field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def build_table_from_rows(table: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Build a declared table from one mapping per row; a nullable value may be missing."""
    names = arrow_schema(table).names
    present = [name for name in names if any(name in row for row in rows)] if rows else names
    return build_table(table, {name: [row.get(name) for row in rows] for name in present})


def _to_arrow(values: Any, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values if values.type == kind else values.cast(kind)
    if pa.types.is_dictionary(kind):
        return encode_texts(values).cast(kind)
    return from_values(values, kind)


def write_table(data: pa.Table, path: Path, row_group_rows: int = ROWS_PER_GROUP, durable: bool = False) -> None:
    """Write a table as Parquet (zstd); readers see the whole file or no file. OSError passes through."""
    with _replacing(path, durable) as file:
        pq.write_table(data, file, row_group_size=row_group_rows, **_choose_encodings(data.schema))


@contextmanager
def _replacing(path: Path, durable: bool = False) -> Iterator[BinaryIO]:
    """Yield a file as `replacing` does, after making its folder."""
    ensure_folder(path.parent)
    # Opened there: Arrow takes no name that is no UTF-8.
    with replacing(path, durable) as file:
        yield file


def _choose_encodings(schema: pa.Schema) -> dict[str, Any]:
    """Return Parquet options that store numbers as differences: times take a third of a dictionary's space."""
    numbers = [field.name for field in schema if pa.types.is_signed_integer(field.type)]
    return {
        "compression": "zstd",
        "use_dictionary": [field.name for field in schema if field.name not in numbers],
        "column_encoding": dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
    }


def write_batches(batches: Iterable[pa.RecordBatch], table: str, path: Path) -> None:
    """Write a table batch by batch, as `write_table` does. A thread writes each batch while the next one is made.

    Numbers are stored as differences only if rows have a time, because sums repeat more often. OSError passes through.
    """
    schema = arrow_schema(table)
    how = _choose_encodings(schema) if "start_ns" in schema.names else {"compression": "zstd"}
    with (
        _replacing(path) as file,
        pq.ParquetWriter(file, schema, **how) as writer,
        ThreadPoolExecutor(1) as thread,
    ):
        writing = None
        for batch in batches:
            if writing is not None:
                writing.result()
            writing = thread.submit(writer.write_batch, batch)
            # Otherwise the pool of buffers would keep the memory that the writer used for earlier batches.
            pa.default_memory_pool().release_unused()
        if writing is not None:
            writing.result()


def write_part(data: pa.Table, rank_folder: Path, table: str, part: int, durable: bool = False) -> None:
    """Write one part of a table: `rank_<r>/<table>/<part>.parquet`. With `durable`, the file survives a loss of power."""
    folder = table_parts_folder(rank_folder, table)
    is_new = not is_plain_folder(folder)
    write_table(data, folder / f"{part:06d}.parquet", durable=durable)
    if durable:
        sync_folder(folder)
        if is_new:
            sync_folder(rank_folder)


def find_files(rank_folder: Path, table: str) -> tuple[Path, ...]:
    """Return the files of a table in time order: its one file or its parts; () if the table was never written."""
    whole = table_file(rank_folder, table)
    if is_plain_file(whole):
        return (whole,)
    folder = table_parts_folder(rank_folder, table)
    return tuple(part.path for part in _list_parts(folder)) if is_plain_folder(folder) else ()


def count_rows(path: Path) -> int:
    borrow(path, end_only=True)
    with open(path, "rb", opener=open_inside) as file:
        try:
            return int(pq.read_metadata(file).num_rows)
        except UnicodeDecodeError as error:  # Arrow accepts such bytes as a column name
            raise pa.ArrowInvalid(f"a name in it is no text: {error}") from None


class _Part(NamedTuple):
    """A file of the parts `first` to `last`: `000007.parquet`, or merged `000000-000015.parquet`."""

    first: int
    last: int
    path: Path

    @property
    def merges(self) -> int:
        """How often the rows of this file have been merged; 0 for a part as written."""
        return (self.last - self.first).bit_length() // (PARTS_PER_MERGE - 1).bit_length()


def _list_parts(folder: Path) -> list[_Part]:
    found = []
    for path in folder.glob("*.parquet"):
        first, _, last = path.stem.partition("-")
        if PART_NAME.fullmatch(path.name) and is_plain_file(path):  # no pipe: it would hold the reader
            found.append(_Part(int(first), int(last or first), path))
    found.sort(key=lambda part: (part.first, -part.last))
    covered, parts = -1, []
    for part in found:
        if part.last > covered:
            parts.append(part)
            covered = part.last
    return parts


def merge_parts(rank_folder: Path, table: str) -> None:
    """Merge the last sixteen parts if they are small and were merged equally often. Repeat while possible.

    So weeks of recording leave some dozens of files, and each row is rewritten only a few times. OSError passes
    through.
    """
    folder = table_parts_folder(rank_folder, table)
    while is_plain_folder(folder):
        last = _list_parts(folder)[-PARTS_PER_MERGE:]
        if len(last) < PARTS_PER_MERGE or len({part.merges for part in last}) > 1:
            return
        if sum(part.path.stat().st_size for part in last) > MERGED_BYTES:
            return
        paths = [part.path for part in last]
        merged = folder / f"{last[0].first:06d}-{last[-1].last:06d}.parquet"
        write_table(read_files(paths, table), merged, durable=True)
        sync_folder(folder)
        for path in paths:
            remove_file(path)


def join_parts(rank_folder: Path, table: str, revise: Callable[[pa.Table], pa.Table] | None = None) -> None:
    """Write the rows of all parts of a table, changed by `revise` if given, to the table's one file. Readers see the
    parts or the whole file. The parts stay; `remove_parts` removes them."""
    folder = table_parts_folder(rank_folder, table)
    parts = find_files(rank_folder, table)
    if not parts or parts[0].parent != folder:
        return
    if revise is not None:
        write_table(revise(read_files(parts, table)), table_file(rank_folder, table), durable=True)
    else:
        _join_files(parts, table, table_file(rank_folder, table))


def remove_parts(rank_folder: Path, tables: Iterable[str]) -> None:
    """Remove the parts of tables that have a joined file, after the joined file is safe from a loss of power.

    Parts without a joined file stay and are synced to the disk. OSError passes through.
    """
    folders = [folder for table in tables if is_plain_folder(folder := table_parts_folder(rank_folder, table))]
    kept = [
        folder
        for folder in folders
        if find_files(rank_folder, folder.name)[:1] != (table_file(rank_folder, folder.name),)
    ]
    for folder in kept:
        sync_tree(folder)
    sync_folder(rank_folder)
    for folder in folders:
        if folder not in kept:
            for name in filter(_LEFT_OVER.fullmatch, os.listdir(folder)):
                remove_file(folder / name)
            remove_empty(folder)  # what others have put there stays


def _join_files(files: Sequence[Path], table: str, target: Path) -> None:
    schema = arrow_schema(table)
    with (
        _replacing(target, durable=True) as file,
        pq.ParquetWriter(file, schema, **_choose_encodings(schema)) as writer,
    ):
        held: list[pa.Table] = []
        for path in files:
            held.append(read_files([path], table))
            if sum(rows.num_rows for rows in held) >= ROWS_PER_GROUP:
                writer.write_table(pa.concat_tables(held).unify_dictionaries(), ROWS_PER_GROUP)
                held.clear()
        if held:
            writer.write_table(pa.concat_tables(held).unify_dictionaries(), ROWS_PER_GROUP)


def read_table(
    rank_folder: Path, table: str, columns: Sequence[str] | None = None, where: pc.Expression | None = None
) -> pa.Table:
    """Read a table of one rank: the given columns (None for all) of the rows that `where` selects (None for all).

    Raises TableMissingError if the table was never written, TableBrokenError naming the damaged file, NewerSchemaError
    if a newer version wrote it.
    """
    files = find_files(rank_folder, table)
    if not files:
        raise TableMissingError(f"{rank_folder} has no table {table!r}")
    return read_files(files, table, columns, where)


def read_last_rows(rank_folder: Path, table: str, columns: Sequence[str], rows: int) -> pa.Table:
    """Read the last `rows` rows of a table; none if it was never written. Raises as `read_table` otherwise."""
    wanted = _choose_columns(table, columns)
    found: list[pa.Table] = []
    for path in reversed(find_files(rank_folder, table)):
        with _opened(path) as parquet:
            first, left = parquet.num_row_groups, rows - sum(map(len, found))
            while first and left > 0:
                first -= 1
                left -= parquet.metadata.row_group(first).num_rows
            groups = range(first, parquet.num_row_groups)
            found[:0] = [read_columns(parquet, path, table, wanted, groups)]
        if sum(map(len, found)) >= rows:
            break
    return pa.concat_tables(found).slice(max(sum(map(len, found)) - rows, 0)) if found else wanted.empty_table()


def count_equal(rank_folder: Path, table: str, column: str, value: str) -> int:
    """Count the rows of a table with a given value in a text column. Raises as `read_table`.

    This may run while a training ends, so Arrow's datasets and threads are avoided. Datasets import pandas, which takes
    time and executes source text; after that, Python no longer knows that Ctrl-C ended a script. Threads may still hold
    Python memory when Python ends, which aborts the process.
    """
    found = 0
    files = find_files(rank_folder, table)
    if not files:
        raise TableMissingError(f"{rank_folder} has no table {table!r}")
    for path in files:
        with _opened(path) as parquet:
            check_schema(parquet.schema_arrow, table, path, [column])
            values = parquet.read([column], use_threads=False).column(0).cast(pa.string())
        # The comparison is in Python too: Arrow imports pandas to convert a Python text to a value of its own.
        found += sum(entry["counts"] for entry in values.value_counts().to_pylist() if entry["values"] == value)
    return found


def read_files(
    files: Iterable[Path], table: str, columns: Sequence[str] | None = None, where: pc.Expression | None = None
) -> pa.Table:
    """Read Parquet files as one declared table. Columns newer than a file are null, or 0 if not nullable."""
    wanted = _choose_columns(table, columns)
    pieces = [_read_file(path, table, wanted, where) for path in files]
    if not pieces:
        return wanted.empty_table()
    return pa.concat_tables(pieces).unify_dictionaries()


def _choose_columns(table: str, columns: Sequence[str] | None) -> pa.Schema:
    declared = arrow_schema(table)
    return declared if columns is None else pa.schema([declared.field(name) for name in columns])


@contextmanager
def _opened(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a file for the block. Arrow's errors become TableBrokenError, or TableMissingError if the file is gone."""
    try:
        with open_native(path) as file, pq.ParquetFile(file, pre_buffer=False) as parquet:
            yield parquet
    except FileNotFoundError:
        raise TableMissingError(f"{path} vanished while it was read; reload the run") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableBrokenError(name_damage(path, str(error).splitlines()[0])) from None


def _read_file(path: Path, table: str, wanted: pa.Schema, where: pc.Expression | None) -> pa.Table:
    with _opened(path) as parquet:
        if where is None and not set(wanted.names).isdisjoint(parquet.schema_arrow.names):
            return read_columns(parquet, path, table, wanted)
        later = check_schema(parquet.schema_arrow, table, path, wanted.names)
        read = _open_dataset(path, arrow_schema(table))
        return _complete(read(columns=wanted.names, filter=where, use_threads=False), path, wanted, later)


def read_columns(
    parquet: pq.ParquetFile, path: Path, table: str, wanted: pa.Schema, groups: range | None = None
) -> pa.Table:
    """Read columns of all row groups or of `groups`, four times as fast as a dataset. `path` is for messages."""
    schema = parquet.schema_arrow
    later = check_schema(schema, table, path, wanted.names)
    there = [name for name in wanted.names if name in schema.names]
    groups = range(parquet.num_row_groups) if groups is None else groups
    return _complete(parquet.read_row_groups(groups, there, use_threads=False), path, wanted, later)


def _complete(data: pa.Table, path: Path, wanted: pa.Schema, later: Sequence[str]) -> pa.Table:
    """Return the data with all declared columns: a missing column is null, or 0 if it is in `later`."""
    check_ranges(data, path)
    known, arrays = set(data.column_names), []
    for field in wanted:
        values = data[field.name] if field.name in known else pa.nulls(len(data), field.type)
        values = pc.fill_null(values, 0) if field.name in later else values
        if not field.nullable and values.null_count:
            raise TableBrokenError(name_damage(path, f"the column {field.name} lacks values"))
        arrays.append(values if values.type == field.type else values.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=wanted)


def _open_dataset(path: Path, schema: pa.Schema) -> Callable[..., pa.Table]:
    """Return a function that reads rows of a file. If Arrow rejects the path, Arrow gets the opened file instead."""
    import pyarrow.dataset as ds  # 0.2 s, because it imports pandas if pandas is installed

    if not is_plain(path):
        fragment = ds.ParquetFileFormat().make_fragment(open_native(path))
        return partial(fragment.to_table, schema)
    reading: Callable[..., pa.Table] = ds.dataset(path, schema=schema, format="parquet").to_table
    return reading
