"""What is taken as plain data: texts without what differs from take to take, long lists and tables as digests."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

Plain = Any
"""What JSON can hold."""
LONGEST = 60
"""Longer lists in data become a digest with their first and last entry."""
_PASSING = (
    (re.compile(r"/static/[0-9a-f]+/"), "/static/"),
    (re.compile(r"stamp=[0-9a-f]{8,}(&amp;|&|\\u0026)?"), ""),
    (re.compile(r'"stamp": ?"[^"]*"'), '"stamp": ""'),
)
"""States of caches, which are others in each take."""


def clean(text: str, root: str) -> str:
    """Return a text, of HTML or JSON, too, without what differs from take to take; `root` is where the runs were copied to."""
    text = text.replace(root, "<runs>")
    for pattern, kept in _PASSING:
        text = pattern.sub(kept, text)
    return text


def shorten(value: Any) -> Plain:
    """Return a value in which long lists are digests."""
    if isinstance(value, dict):
        return {key: shorten(inner) for key, inner in value.items()}
    if isinstance(value, list) and len(value) > LONGEST:
        ends = {"first": shorten(value[0]), "last": shorten(value[-1])}
        return {"count": len(value), "sha256": digest(value), **ends}
    return [shorten(inner) for inner in value] if isinstance(value, list) else value


def digest(value: Any) -> str:
    """Return the SHA-256 of a value in its canonical form: JSON with sorted keys."""
    return digest_bytes(json.dumps(value, sort_keys=True).encode())


def digest_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest_trace(trace: Mapping[str, Any]) -> Plain:
    """Return the events of a trace, counted by phase and category, each kind with a digest of its events in their order."""
    kinds: dict[str, list[Any]] = {}
    for event in trace["traceEvents"]:
        kinds.setdefault(f"{event.get('ph')} {event.get('cat', '')}".strip(), []).append(event)
    events = {kind: {"count": len(found), "sha256": digest(found)} for kind, found in kinds.items()}
    return {"events": events, **{key: shorten(value) for key, value in trace.items() if key != "traceEvents"}}


def digest_table(table: pa.Table) -> Plain:
    """Return the schema of a table, its rows counted, and for each column its type, its nulls and a digest."""
    columns = {
        name: f"{column.type}, {column.null_count} null, {digest_bytes(_encode(column.combine_chunks()))[:16]}"
        for name, column in zip(table.column_names, table.columns, strict=True)
    }
    return {"rows": table.num_rows, "order": table.column_names, "columns": columns}


def _encode(column: pa.Array) -> bytes:
    """Return the same bytes for the same values, however Arrow has stored them."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_string(column.type) and len(column):
        packed = column.dictionary_encode()
        texts = json.dumps(packed.dictionary.to_pylist()).encode()
        return b"".join((texts, packed.indices.fill_null(-1).to_numpy().tobytes()))
    if pa.types.is_primitive(column.type):
        known = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
        return b"".join(one.to_numpy(zero_copy_only=False).tobytes() for one in (known, column.is_null()))
    return json.dumps(column.to_pylist(), default=str).encode()
