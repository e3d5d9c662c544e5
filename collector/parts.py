"""Tables on disk: Arrow schemas made from the declarations, Parquet parts written whole or not at all, and read back.

May import `collector.schema`, pyarrow. Must not import torch, pandas or any room above.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from collector.schema.columns import Dtype
from collector.schema.errors import NewerSchemaError, TableBrokenError, TableMissingError
from collector.schema.layout import table_file, table_parts_folder
from collector.schema.tables import TABLES
from collector.schema.version import SCHEMA_VERSION

_ARROW_TYPES: dict[Dtype, pa.DataType] = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "category": pa.dictionary(pa.int32(), pa.string()),
}
_VERSION_KEY = b"stepscope.schema_version"


@cache
def arrow_schema(table: str) -> pa.Schema:
    """Return the Arrow schema of a declared table, with the format version in its metadata."""
    fields = [pa.field(c.name, _ARROW_TYPES[c.dtype], nullable=c.nullable) for c in TABLES[table].columns]
    return pa.schema(fields, metadata={_VERSION_KEY: str(SCHEMA_VERSION).encode()})


def build_table(table: str, columns: Mapping[str, Any]) -> pa.Table:
    """Build a declared table from columns (lists, numpy or Arrow arrays). A nullable column may be left out."""
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
    """Build a declared table from one mapping per row; a nullable value may be left out."""
    names = arrow_schema(table).names
    present = [name for name in names if any(name in row for row in rows)] if rows else names
    return build_table(table, {name: [row.get(name) for row in rows] for name in present})


def _to_arrow(values: Any, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, (pa.Array, pa.ChunkedArray)):
        return values if values.type == kind else values.cast(kind)
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.string()).dictionary_encode().cast(kind)
    return pa.array(values, kind)


def write_table(data: pa.Table, path: Path, row_group_rows: int = 1 << 17) -> None:
    """Write a table as Parquet (zstd) so that a reader sees all of it or nothing. OSError passes through."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        pq.write_table(data, partial, compression="zstd", row_group_size=row_group_rows)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_part(data: pa.Table, rank_folder: Path, table: str, part: int) -> None:
    """Write one part of a table: `rank_<r>/<table>/<part>.parquet`."""
    write_table(data, table_parts_folder(rank_folder, table) / f"{part:06d}.parquet")


def find_files(rank_folder: Path, table: str) -> tuple[Path, ...]:
    """Return the files of a table in time order, empty if it was never written."""
    whole = table_file(rank_folder, table)
    if whole.is_file():
        return (whole,)
    folder = table_parts_folder(rank_folder, table)
    return tuple(sorted(p for p in folder.glob("*.parquet") if not p.name.startswith("."))) if folder.is_dir() else ()


def compact_parts(rank_folder: Path, table: str, revise: Callable[[pa.Table], pa.Table] | None = None) -> None:
    """Make one file of the parts of a table, revised, then remove the parts. A reader sees one or the other."""
    folder = table_parts_folder(rank_folder, table)
    if not folder.is_dir():
        return
    parts = find_files(rank_folder, table)
    if parts and parts[0].parent == folder:
        rows = read_files(parts, table)
        write_table(revise(rows) if revise else rows, table_file(rank_folder, table))
    for leftover in folder.iterdir():
        leftover.unlink(missing_ok=True)
    folder.rmdir()


def read_table(
    rank_folder: Path, table: str, columns: Sequence[str] | None = None, where: ds.Expression | None = None
) -> pa.Table:
    """Read a table of one rank, only the given columns and rows.

    Raises TableMissingError if it was never written, TableBrokenError naming the damaged file,
    NewerSchemaError if a newer version wrote it.
    """
    files = find_files(rank_folder, table)
    if not files:
        raise TableMissingError(f"{rank_folder} has no table {table!r}")
    return read_files(files, table, columns, where)


def read_files(
    files: Iterable[Path], table: str, columns: Sequence[str] | None = None, where: ds.Expression | None = None
) -> pa.Table:
    """Read Parquet files as one declared table. A nullable column that an older version did not write is null."""
    declared = arrow_schema(table)
    wanted = declared if columns is None else pa.schema([declared.field(name) for name in columns])
    pieces = [_read_file(path, table, wanted, where) for path in files]
    if not pieces:
        return wanted.empty_table()
    return pa.concat_tables(pieces).unify_dictionaries()


def _read_file(path: Path, table: str, wanted: pa.Schema, where: ds.Expression | None) -> pa.Table:
    try:
        stored = pq.read_schema(path)
        _check_version(stored, path)
        missing = [f.name for f in wanted if f.name not in stored.names]
        required = [name for name in missing if not wanted.field(name).nullable]
        if required:
            raise TableBrokenError(f"{path} lacks the column(s) {', '.join(required)} of the table {table!r}")
        source = ds.dataset(path, schema=arrow_schema(table), format="parquet")
        data = source.to_table(columns=wanted.names, filter=where, use_threads=False)
    except FileNotFoundError:
        raise TableMissingError(f"{path} vanished while it was read; reload the run") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TableBrokenError(
            f"{path} is damaged ({str(error).splitlines()[0]}); the other tables of the run are not affected"
        ) from None
    return data.cast(wanted) if data.schema != wanted else data


def _check_version(stored: pa.Schema, path: Path) -> None:
    raw = (stored.metadata or {}).get(_VERSION_KEY, b"1")
    version = int(raw) if raw.isdigit() else 1
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"{path} has format version {version}, this Stepscope reads up to {SCHEMA_VERSION}; upgrade Stepscope"
        )
