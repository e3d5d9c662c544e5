"""Arrow schemas, made from the declarations of the tables."""

from __future__ import annotations

import pyarrow as pa

from collector.format.schema.columns import Dtype
from collector.format.schema.tables import TABLES
from collector.format.schema.version import SCHEMA_VERSION

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
"""The schemas of all tables, by name."""
