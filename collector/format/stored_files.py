"""Open the Parquet files of tables, and check them against the declaration of their table and its Arrow schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.format.schema.columns import SCHEMA_VERSION, Dtype
from collector.format.schema.errors import NewerSchemaError, TableBrokenError
from collector.format.schema.inside import is_plain_file, open_inside
from collector.format.schema.tables import TABLES

_ARROW_TYPES: dict[Dtype, pa.DataType] = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "category": pa.dictionary(pa.int32(), pa.string()),
}
VERSION_KEY = b"stepscope.schema_version"


def arrow_schema(table: str) -> pa.Schema:
    """Return the Arrow schema of a declared table, with the format version in its metadata."""
    return SCHEMAS[table]


def make_schema(table: str) -> pa.Schema:
    fields = [pa.field(c.name, _ARROW_TYPES[c.dtype], nullable=c.nullable) for c in TABLES[table].columns]
    return pa.schema(fields, metadata={VERSION_KEY: str(SCHEMA_VERSION).encode()})


SCHEMAS = {table: make_schema(table) for table in TABLES}


FARTHEST_NS = 1 << 61
"""The greatest distance of a time from a run's epoch (73 years); sums and differences of times still fit 64 bits."""
MOST_TRACKS = 1 << 24
"""Tracks are numbered from 0; a greater number is damage, and must not reserve memory."""


LENDERS: list[Callable[[Path, bool], None]] = []
"""Functions called before a file is read, to fetch a remote file. The flag asks for its end only."""


def borrow(path: Path, end_only: bool = False) -> None:
    """Fetch a remote file, or only its end, so that it can be read at `path`; do nothing for a local one. Raises
    TableMissingError if that fails."""
    for lend in LENDERS:
        lend(path, end_only)


def open_file(path: Path, table: str, columns: Iterable[str] = ()) -> pq.ParquetFile:
    """Open a table's file for reading in pieces. Raises as `check_schema`, and Arrow's errors."""
    borrow(path)
    try:
        file = pq.ParquetFile(open_native(path))
    except UnicodeDecodeError as error:  # which Arrow lets through for the name of a column
        raise pa.ArrowInvalid(f"a name in it is no text: {error}") from None
    check_schema(file.schema_arrow, table, path, columns)
    return file


def open_native(path: Path) -> pa.NativeFile:
    """Open a file for Arrow without Python objects: Arrow's threads might still hold these when Python ends."""
    borrow(path)
    with open(path, "rb", opener=open_inside) as file:
        try:
            return pa.OSFile(f"/dev/fd/{file.fileno()}")
        except OSError:  # some containers have no /dev/fd
            if not (is_plain(path) and is_plain_file(path)):
                raise
            return pa.OSFile(str(path))


def is_plain(path: Path) -> bool:
    """Return whether Arrow accepts the path: names that are not UTF-8 are rejected."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def check_ranges(data: pa.Table | pa.RecordBatch, path: Path) -> None:
    """Raise TableBrokenError if a time or a track number of the file is out of range. Nulls are not checked."""
    for name in data.schema.names:
        low, high = (0, MOST_TRACKS) if name == "track" else (-FARTHEST_NS, FARTHEST_NS)
        column = data.column(name)
        if not (name == "track" or name.endswith("_ns")) or not pa.types.is_integer(column.type):
            continue
        least, most = pc.min_max(column).as_py().values()
        if least is not None and not low <= least <= most <= high:
            odd = most if most > high else least
            raise TableBrokenError(name_damage(path, f"the column {name} holds {odd}"))


def check_schema(stored: pa.Schema, table: str, path: Path, columns: Iterable[str]) -> list[str]:
    """Return those of `columns` that read as 0: they are not nullable, and the file is older than these columns.

    Raises TableBrokenError if another column is missing, double or of another type. Raises NewerSchemaError if a newer
    version wrote the file.
    """
    version = check_version(stored, path)
    later, names = [], stored.names
    for field in map(arrow_schema(table).field, columns):
        if field.name in names:
            if names.count(field.name) > 1:
                raise TableBrokenError(name_damage(path, f"it has two columns {field.name}"))
            found = stored.field(field.name).type
            if not _holds(found, field.type):
                what = f"the column {field.name} holds {found} in the place of {TABLES[table].column(field.name).dtype}"
                raise TableBrokenError(name_damage(path, what))
        elif TABLES[table].column(field.name).since > version:
            later += [] if field.nullable else [field.name]
        elif not field.nullable:
            raise TableBrokenError(name_damage(path, f"the column {field.name} is missing"))
    return later


def _holds(found: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether values of a stored type fit the declared type; a dictionary counts as its value type."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_null(found):
        return True
    if pa.types.is_signed_integer(declared):
        return bool(pa.types.is_signed_integer(found) and found.bit_width <= declared.bit_width)
    if pa.types.is_floating(declared) or pa.types.is_boolean(declared):
        return bool(found == declared)
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found))


def name_damage(path: Path, what: str) -> str:
    return f"{path} is damaged ({what}) and cannot be made again; the other tables of the run are not affected"


def check_version(stored: pa.Schema, path: Path) -> int:
    """Return the format version of a file. Raises NewerSchemaError if this version cannot read it."""
    raw = (stored.metadata or {}).get(VERSION_KEY, b"1")
    version = int(raw[:9]) if raw.isdigit() else 1  # Python makes no number of thousands of digits
    if version > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"{path} has format version {version}, this Stepscope reads up to {SCHEMA_VERSION}; upgrade Stepscope"
        )
    return version
