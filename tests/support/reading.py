"""What a trace that was read holds, for a test to look at."""

from __future__ import annotations

from collector.traces.format import TraceTables


def codes_of(read: TraceTables) -> set[str]:
    return {warning.code for warning in read.warnings}


def slices_named(read: TraceTables, name: str) -> list[dict[str, object]]:
    return [row for row in read.tables["slices"].to_pylist() if row["name"] == name]
