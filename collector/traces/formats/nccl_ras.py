"""The job status from NCCL's RAS: `ncclras -f json > ras.json`. One file holds all ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from collector.format import parts
from collector.format.schema.errors import TraceError
from collector.hangs.nccl_ras import Process, Status, StatusError, number_processes, read_status
from collector.traces.format import ReadOptions, StreamedTables, TraceFacts, TraceFormat, TraceTables
from collector.traces.source import read_small

_HEAD_BYTES = 4096
_KEYS = (b'"nccl_version"', b'"communicators"')


def read(path: Path, options: ReadOptions) -> TraceTables | None:
    data = read_small(path, _is_status, "status of NCCL's RAS")
    if data is None:
        return None
    try:
        status = read_status(json.loads(data))
    except (UnicodeDecodeError, RecursionError):
        raise TraceError(f"{path} is no status of NCCL's RAS: it is no JSON text") from None
    except json.JSONDecodeError as error:
        what = f"{error.msg} at byte {error.pos:,}"
        raise TraceError(f"{path} is no whole status of NCCL's RAS: {what}; save one answer of ncclras") from None
    except ValueError as error:
        kind = "status of NCCL's RAS" if isinstance(error, StatusError) else "JSON text"
        raise TraceError(f"{path} is no {kind}: {str(error)[:300]}") from None
    if not any(communicator.members for communicator in status.communicators):
        raise TraceError(f"{path} names no rank: when ncclras was asked, the job had no communicator")
    return _build(status)


def _is_status(head: bytes) -> bool:
    return head.lstrip().startswith(b"{") and all(key in head[:_HEAD_BYTES] for key in _KEYS)


def _build(status: Status) -> TraceTables:
    ranks = number_processes(status)
    rows: dict[int, list[dict[str, Any]]] = {rank: [] for rank in sorted(ranks.values())}
    for communicator in status.communicators:
        for member in communicator.members:
            common = {
                "group": communicator.name,
                "group_size": min(communicator.size, 1 << 30),
                "group_rank": member.rank,
                "state": member.state,
                "error": member.error,
                "process": _spell_process(member.process),
            }
            counts = member.counts.items() or ((None, None),)
            rows[ranks[member.process]] += [{**common, "collective": name, "count": count} for name, count in counts]
    first, *others = (_build_rank(status, rank, len(rows), found) for rank, found in rows.items())
    return TraceTables(first.tables, first.facts, beside=tuple(others))


def _build_rank(status: Status, rank: int, world: int, rows: list[dict[str, Any]]) -> TraceTables:
    asked = {"timestamp": status.timestamp, "timeouts": status.timeouts}
    facts = TraceFacts(rank, world, versions={"nccl": status.version}, facts={"nccl_status": asked})
    table = parts.build_table_from_rows("communicators", rows)
    return TraceTables(StreamedTables.of({"communicators": table}), facts)


def _spell_process(process: Process) -> str:
    host, pid, device, _ = process
    known = f"process {pid} on {host}" if pid >= 0 else "a process that RAS does not know"
    return f"{known}, GPU {device}" if device >= 0 else known


FORMAT = TraceFormat("status of NCCL's RAS", "nccl_ras", (".json",), 7, read)
