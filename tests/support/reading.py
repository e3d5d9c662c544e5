"""What a trace that was read holds, for a test to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from collector.traces.format import ReadOptions, TraceTables
from collector.traces.reading import read_trace
from tests.support.traces import Event, write_trace


def read_events(
    folder: Path, events: Sequence[Event], metadata: Mapping[str, Any] | None = None, steps_from: str | None = None
) -> TraceTables:
    """Write a trace of some events into a folder, and read it."""
    return read_trace(write_trace(folder / "t.json", events, metadata), ReadOptions(steps_from=steps_from))


def train_steps(read: TraceTables) -> list[dict[str, Any]]:
    return [row for row in read.tables["steps"].to_pylist() if row["kind"] == "train"]


def codes_of(read: TraceTables) -> set[str]:
    return {warning.code for warning in read.warnings}


def slices_named(read: TraceTables, name: str) -> list[dict[str, object]]:
    return [row for row in read.tables["slices"].to_pylist() if row["name"] == name]
