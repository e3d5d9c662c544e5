"""Dumps of PyTorch's Flight Recorder, one per rank. A dump is a pickle of plain values, or the same values as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from collector.format import parts
from collector.format.schema.errors import TraceError
from collector.hangs.flight_recorder import MAGIC, Dump, DumpError, PickleError, is_dump, read_dump, read_plain_pickle
from collector.traces.format import ReadOptions, StreamedTables, TraceFacts, TraceFormat, TraceTables
from collector.traces.source import read_small

_SAME = ("group", "sequence", "name", "is_p2p", "is_started", "is_completed", "bytes", "dtype", "shapes", "place")


def read(path: Path, options: ReadOptions) -> TraceTables | None:
    values = _read_values(path)
    if values is None:
        return None
    try:
        dump = read_dump(values, path.name)
    except DumpError as error:
        raise TraceError(f"{path} is no dump of the Flight Recorder: {error}") from None
    return _build(dump)


def _read_values(path: Path) -> Any:
    """Return the values in a dump; None for a file that is no dump. Raises TraceError for a damaged pickle."""
    data = read_small(path, _is_dump, "dump of the Flight Recorder")
    if data is None:
        return None
    if data.startswith(MAGIC):
        try:
            return read_plain_pickle(data)
        except PickleError as error:
            raise TraceError(f"{path} is a pickle that is not read: {error}") from None
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return values if is_dump(values) else None


def _is_dump(head: bytes) -> bool:
    is_json = head.lstrip().startswith(b"{") and b'"entries"' in head and b"traceEvents" not in head
    return head.startswith(MAGIC) or is_json


def _build(dump: Dump) -> TraceTables:
    entries = sorted(dump.entries, key=lambda entry: entry.created_ns)
    epoch = entries[0].created_ns if entries else 0
    ends = [entry.completed_ns or entry.created_ns for entry in entries]
    world = max((len(ranks) for ranks in dump.groups.values()), default=0)
    facts = TraceFacts(
        rank=dump.rank,
        world_size=world or None,
        epoch_unix_ns=epoch,
        absolute=bool(epoch),
        end_ns=max(ends, default=epoch) - epoch,
        versions={"flight_recorder": dump.version},
        facts={
            "process_groups": {name: list(ranks) for name, ranks in dump.groups.items()},
            "group_labels": dict(dump.labels),
            "entered_collectives": dict(dump.entered),
            "is_flight_cut": dump.is_cut,
        },
    )
    rows = [
        {
            **{name: getattr(entry, name) for name in _SAME},
            "start_ns": entry.created_ns - epoch,
            "duration_ns": entry.completed_ns - entry.started_ns if entry.completed_ns and entry.started_ns else None,
        }
        for entry in entries
    ]
    return TraceTables(StreamedTables.of({"flight": parts.build_table_from_rows("flight", rows)}), facts)


# A dump is named by a prefix that the user may choose, and the rank.
FORMAT = TraceFormat("Flight Recorder dump", "flight_recorder", (".pkl", ".pickle", ".json"), 6, read, r"rank_?\d{1,9}")
