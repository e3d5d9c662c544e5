"""Dumps of PyTorch's Flight Recorder, one per rank: pickles of plain values, or the same as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from collector.format import parts
from collector.format.schema.errors import TraceError
from collector.hangs.flight_recorder import Dump, DumpError, is_dump, read_dump
from collector.hangs.pickles import MAGIC, PickleError, read_plain_pickle
from collector.traces.format import ReadOptions, StreamedTables, TraceFacts, TraceTables

_MOST_BYTES = 256 << 20
_JSON_HEAD = 65_536


class FlightFormat:
    """See `TraceFormat`."""

    name = "Flight Recorder dump"
    order = 6

    def read(self, path: Path, options: ReadOptions) -> TraceTables | None:
        values = _read_values(path)
        if values is None:
            return None
        try:
            dump = read_dump(values, path.name)
        except DumpError as error:
            raise TraceError(f"{path} is no dump of the Flight Recorder: {error}") from None
        return _build(dump)


def _read_values(path: Path) -> Any:
    """Return the values of a file that may be a dump; None for another file. Raises TraceError for a damaged pickle."""
    with path.open("rb") as file:
        head = file.read(_JSON_HEAD)
        is_pickle = head.startswith(MAGIC)
        if not is_pickle and not (
            head.lstrip().startswith(b"{") and b'"entries"' in head and b"traceEvents" not in head
        ):
            return None
        data = head + file.read(_MOST_BYTES + 1 - len(head))
    if len(data) > _MOST_BYTES:
        raise TraceError(f"{path} is larger than {_MOST_BYTES >> 20} MiB, which no dump of the Flight Recorder is")
    if is_pickle:
        try:
            return read_plain_pickle(data)
        except PickleError as error:
            raise TraceError(f"{path} is a pickle that is not read: {error}") from None
    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return values if is_dump(values) else None


def _build(dump: Dump) -> TraceTables:
    entries = sorted(dump.entries, key=lambda entry: entry.created_ns)
    epoch = entries[0].created_ns if entries else 0
    ends = [entry.completed_ns or entry.created_ns for entry in entries]
    world = max((len(ranks) for ranks in dump.groups.values()), default=0)
    facts = TraceFacts(
        rank=dump.rank,
        world_size=world or None,
        devices=(),
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
            "group": entry.group,
            "sequence": entry.sequence,
            "name": entry.name,
            "is_p2p": entry.is_p2p,
            "is_started": entry.is_started,
            "is_completed": entry.is_completed,
            "start_ns": entry.created_ns - epoch,
            "duration_ns": entry.completed_ns - entry.started_ns if entry.completed_ns and entry.started_ns else None,
            "bytes": entry.bytes,
            "dtype": entry.dtype,
            "shapes": entry.shapes,
            "place": entry.place,
        }
        for entry in entries
    ]
    return TraceTables(StreamedTables.of({"flight": parts.build_table_from_rows("flight", rows)}), facts)


FORMAT = FlightFormat()
