"""The tables `ranges`, `stages` and `queues`, made from mark logs: the work that a script names itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.parts import build_table_from_rows
from collector.format.schema.layout import events_path
from collector.ring import mark_log
from collector.ring.clock import Clock
from collector.ring.mark_log import DeviceTime, QueueDepth, Range, StageSpan
from collector.ring.records import RecordReader, decode_text
from collector.sidecar.assembler import Assembler
from collector.sidecar.log_followers import LogFollower

MOST_HELD = 10_000
"""The greatest number of ranges that wait for their device time. Beyond it, the oldest ranges get no device time."""
_PROCESS_SHIFT = 40
_OWN_LOADER = -1

Row = dict[str, Any]
Rows = dict[str, list[Row]]


class MarkAssembler(Assembler):
    revises = ("ranges",)

    def __init__(self, rank_folder: Path, clock: Clock) -> None:
        super().__init__(rank_folder, clock)
        events = events_path(rank_folder)
        self._logs = LogFollower(events, mark_log.RING_PATTERN, mark_log.FIELDS, self._open, _find_time)
        self._processes = 0
        self._held: dict[int, Row] = {}
        self._dropped: set[int] = set()
        self._replicas: dict[str, int] = {}
        self._find_first_end: Callable[[], int] = int

    def listen(self, others: Mapping[str, Assembler]) -> None:
        self._find_first_end = getattr(others.get("steps"), "find_first_end", self._find_first_end)

    def poll(self) -> dict[str, pa.Table]:
        rows: Rows = {"ranges": [], "stages": [], "queues": []}
        for log in self._logs.follow():
            self._read(log, rows)
        while len(self._held) > MOST_HELD:
            rows["ranges"].append(self._held.pop(next(iter(self._held))))
        return self._build(rows)

    def finish(self) -> dict[str, pa.Table]:
        tables = self.poll()
        held, self._held = list(self._held.values()), {}
        if held:
            rest = self._build({"ranges": held})
            tables["ranges"] = pa.concat_tables([*filter(None, [tables.get("ranges")]), rest["ranges"]])
        return tables

    def revise(self, table: str, rows: pa.Table) -> pa.Table:
        """Return the rows of `ranges` without the ranges that the script dropped, and without the ranges inside of
        them. In a training, what came before the end of the first step has step 1 and no number of a call.
        """
        if table != "ranges":
            return rows
        if end_ns := self._find_first_end():
            is_early = pc.and_(pc.less(rows["start_ns"], end_ns), pc.is_valid(rows["step"]))
            steps = pc.if_else(is_early, pa.scalar(1, rows["step"].type), rows["step"])
            rows = rows.set_column(rows.column_names.index("step"), rows.schema.field("step"), steps)
        if not self._dropped:
            return rows
        ids = rows["id"].to_numpy()
        parents = pc.fill_null(rows["parent"], -1).to_numpy()
        gone = np.array(sorted(self._dropped))
        while True:
            inside = np.isin(parents, gone) & ~np.isin(ids, gone)
            if not inside.any():
                break
            gone = np.concatenate([gone, ids[inside]])
        return rows.filter(pa.array(~np.isin(ids, gone)))

    def describe(self) -> dict[str, Any]:
        return {"events_lost": self._logs.lost}

    def checkpoint(self) -> dict[str, Any]:
        return {
            "logs": self._logs.checkpoint(),
            "processes": self._processes,
            "held": list(self._held.values()),
            "dropped": sorted(self._dropped),
            "replicas": self._replicas,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._logs.restore(state["logs"])
        self._processes = state["processes"]
        self._held = {row["id"]: row for row in state["held"]}
        self._dropped = set(state["dropped"])
        self._replicas = dict(state["replicas"])

    def release(self) -> None:
        self._logs.release()

    def _open(self, ring: RecordReader, saved: dict[str, Any] | None) -> _LogReader:
        if saved is None:
            saved = {"process": self._processes, "names": {}}
            self._processes += 1
        return _LogReader(ring, saved)

    def _read(self, log: _LogReader, rows: Rows) -> None:
        records = log.ring.read().tolist()
        # Names are handled first: after lost records, a name may be repeated after records that use it.
        for kind, *fields in records:
            if kind == mark_log.NAME:
                log.names[fields[0]] = (fields[1], decode_text(fields[2:]))
        for kind, *fields in records:
            if kind == mark_log.RANGE:
                self._add_range(log, Range(*fields[: len(Range._fields)]), rows)
            elif kind == mark_log.DEVICE:
                time = DeviceTime(*fields[: len(DeviceTime._fields)])
                row = self._held.pop(log.number(time.id), None)
                if row is not None:
                    rows["ranges"].append({**row, "device_ns": _known(time.device_ns)})
            elif kind == mark_log.DROP:
                self._drop(log.number(fields[0]))
            elif kind == mark_log.STAGE:
                rows["stages"].append(self._place_stage(log, StageSpan(*fields[: len(StageSpan._fields)])))
            elif kind == mark_log.QUEUE:
                rows["queues"].append(self._place_queue(log, QueueDepth(*fields[: len(QueueDepth._fields)])))

    def _add_range(self, log: _LogReader, entry: Range, rows: Rows) -> None:
        path = log.path(entry.name)
        row = {
            "id": log.number(entry.id),
            "parent": None if entry.parent == mark_log.NO_PARENT else log.number(entry.parent),
            "name": path[-1],
            "path": "/".join(path),
            "thread_id": entry.thread,
            "process": log.ring.pid,
            "step": _known(entry.step),
            "start_ns": self.clock.to_run(entry.start_ns),
            "duration_ns": entry.duration_ns,
            "device_ns": None if entry.flags & (mark_log.DEVICE_LATER | mark_log.DEVICE_UNKNOWN) else 0,
            "batch": _known(entry.batch),
            "total_items": _known(entry.items),
            "failed": bool(entry.flags & mark_log.FAILED),
            "training": bool(entry.flags & mark_log.ON_TRAINING_THREAD),
            "left_open": bool(entry.flags & mark_log.LEFT_OPEN),
        }
        if entry.flags & mark_log.DEVICE_LATER:
            self._held[row["id"]] = row
        else:
            rows["ranges"].append(row)

    def _drop(self, number: int) -> None:
        """Remember that the script dropped a range. Rows of it may be on the disk already; `revise` leaves them out."""
        self._dropped.add(number)
        self._held = {key: row for key, row in self._held.items() if row["parent"] != number}

    def _place_stage(self, log: _LogReader, span: StageSpan) -> Row:
        name = log.path(span.name)[-1]
        return {
            "stage": name,
            "replica": self._number_replica(log, name, span),
            "kind": mark_log.KINDS[span.kind],
            "detail": log.path(span.queue)[-1] if span.queue != mark_log.UNKNOWN else None,
            "batch": span.number,
            "start_ns": self.clock.to_run(span.start_ns),
            "duration_ns": span.duration_ns,
            "cpu_ns": _known(min(span.cpu_ns, span.duration_ns)),
            "items": span.items,
            "bytes": span.bytes or None,
        }

    def _number_replica(self, log: _LogReader, name: str, span: StageSpan) -> int:
        """Return the replica number that the script gave, else a number of the thread that ran the stage."""
        if span.replica >= 0:
            return span.replica
        known = self._replicas
        key = f"{name}\0{log.ring.pid}\0{span.thread}"
        if key not in known:
            known[key] = sum(other.startswith(f"{name}\0") for other in known)
        return known[key]

    def _place_queue(self, log: _LogReader, depth: QueueDepth) -> Row:
        return {
            "step": max(depth.step, 0),
            "start_ns": self.clock.to_run(depth.at_ns),
            "loader": _OWN_LOADER,
            "queue": log.path(depth.name)[-1],
            "depth": depth.depth,
            "capacity": depth.capacity,
        }

    def _build(self, rows: Rows) -> dict[str, pa.Table]:
        return {name: build_table_from_rows(name, entries) for name, entries in rows.items() if entries}


class _LogReader:
    """A reader of one mark log, with its names and the number within the rank of the process that writes it."""

    def __init__(self, ring: RecordReader, saved: dict[str, Any]) -> None:
        self.ring = ring
        self.names: dict[int, tuple[int, str]] = {int(key): tuple(value) for key, value in saved["names"].items()}
        self._process = saved["process"]

    def checkpoint(self) -> dict[str, Any]:
        return {"position": self.ring.position, "names": self.names, "process": self._process}

    def number(self, range_id: int) -> int:
        return int(self._process << _PROCESS_SHIFT) + range_id

    def path(self, name: int) -> list[str]:
        found: list[str] = []
        while name in self.names:
            name, text = self.names[name]
            found.append(text)
        return found[::-1] or ["(name lost)"]


def _find_time(path: Path) -> int:
    return int(path.stem.rpartition("-")[2])


def _known(value: int) -> int | None:
    return None if value == mark_log.UNKNOWN else value


ASSEMBLER = MarkAssembler
