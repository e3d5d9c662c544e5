"""The table `stages`, made from stage logs: the work and the waits of each worker (and the pin thread) for each batch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collector.format.parts import build_table
from collector.format.schema.layout import events_path
from collector.ring import stage_log
from collector.ring.clock import Clock
from collector.ring.records import RecordReader, decode_text
from collector.ring.stage_log import UNKNOWN, Batch, Part, Send, Span, unpack_opened
from collector.sidecar.assembler import Assembler
from collector.sidecar.log_followers import LogFollower

_KEPT_BATCHES = 4096
_HERE = "batches here"
"""Key in a checkpoint for batches that the training process made itself; the other keys are names of logs."""
_SHORTEST_SEND_WAIT_NS = 20_000
"""Shortest wait for the pipe that is recorded. A shorter wait is due to the scheduler and counts as sending."""


class Row(NamedTuple):
    """One row of `stages`, in the order of the declared columns. `start_ns` is a perf_counter_ns reading."""

    stage: str
    replica: int
    kind: str
    detail: str | None
    loader: int | None
    epoch: int | None
    batch: int | None
    start_ns: int
    duration_ns: int
    cpu_ns: int | None
    items: int
    bytes: int | None = None
    longest_ns: int | None = None
    longest_item: int | None = None
    opened: int | None = None
    open_ns: int | None = None


class StageAssembler(Assembler):
    def __init__(self, rank_folder: Path, clock: Clock) -> None:
        super().__init__(rank_folder, clock)
        events = events_path(rank_folder)
        self._logs = LogFollower(events, stage_log.RING_PATTERN, stage_log.FIELDS, _LogReader)
        self._items: OrderedDict[tuple[int, ...], int] = OrderedDict()
        self._notes: dict[str, None] = {}
        self._here = BatchesHere()

    def derive(self, table: str, rows: pa.Table) -> dict[str, pa.Table]:
        """Return estimated rows of `stages` for new rows of `fetches` whose batches were made here without timings."""
        if table != "fetches" or self._here.is_empty:
            return {}
        # What was written of those batches came before the end of their fetch, so it is there by now.
        pieces = [*self.poll().values(), *(build_table("stages", columns) for columns in self._here.divide(rows))]
        return {"stages": pa.concat_tables(pieces).unify_dictionaries()} if pieces else {}

    def poll(self) -> dict[str, pa.Table]:
        rows: list[Row] = []
        for log in self._logs.follow():
            rows += log.read(self._items, self._here)
            self._notes.update(dict.fromkeys(log.notes))
        while len(self._items) > _KEPT_BATCHES:
            self._items.popitem(last=False)
        return {"stages": self._build(rows)} if rows else {}

    def describe(self) -> dict[str, Any]:
        warnings = [{"code": "stages_note", "text": text} for text in self._notes]
        return {"warnings": warnings, "events_lost": self._logs.lost}

    def checkpoint(self) -> dict[str, Any]:
        return {**self._logs.checkpoint(), _HERE: self._here.checkpoint()}

    def restore(self, state: dict[str, Any]) -> None:
        saved = dict(state)
        self._here.restore(saved.pop(_HERE))
        self._logs.restore(saved)

    def release(self) -> None:
        self._logs.release()

    def _build(self, rows: Sequence[Row]) -> pa.Table:
        columns = dict(zip(Row._fields, map(list, zip(*rows, strict=True)), strict=True))
        columns["start_ns"] = [self.clock.to_run(start) for start in columns["start_ns"]]
        return build_table("stages", columns)


@dataclass
class _Shares:
    """The times in ns of reading and of each transform, summed over timed batches: those whose samples were timed one
    by one. The work of an untimed batch is divided in the same proportions.
    """

    read_ns: int = 0
    parts_ns: dict[str, int] = field(default_factory=dict)

    def add(self, read_ns: int, parts: Iterable[tuple[str, int]]) -> None:
        self.read_ns += read_ns
        for name, part_ns in parts:
            self.parts_ns[name] = self.parts_ns.get(name, 0) + part_ns

    def divide(self, work_ns: int) -> tuple[int, list[tuple[str, int]]]:
        """Divide the work of an untimed batch: return the time of reading, and the name and time of each transform."""
        whole = self.read_ns + sum(self.parts_ns.values())
        if not whole:
            return work_ns, []
        parts = [(name, work_ns * part // whole) for name, part in self.parts_ns.items()]
        return work_ns - sum(length for _, length in parts), parts


class _LogReader:
    def __init__(self, ring: RecordReader, saved: dict[str, Any] | None) -> None:
        self.ring = ring
        self.notes: list[str] = []
        self._replica = ring.meta[0]
        self._names: dict[int, str] = {int(key): name for key, name in (saved or {}).get("names", {}).items()}
        self._parts: list[Part] = []
        self._parts_from = 0
        self._shares = _Shares()

    def checkpoint(self) -> dict[str, Any]:
        # Parts come before their batch: the next reader must read the parts again whose batch has not come yet.
        position = self._parts_from if self._parts else self.ring.position
        return {"position": position, "names": self._names}

    def read(self, items: OrderedDict[tuple[int, ...], int], here: BatchesHere) -> list[Row]:
        """Return rows for new records. Note in `items` the samples of each batch, and in `here` those made here."""
        rows: list[Row] = []
        records = self.ring.read().tolist()
        for number, (kind, *fields) in enumerate(records, self.ring.position - len(records)):
            if kind == stage_log.BATCH:
                batch = Batch(*fields[: len(Batch._fields)])
                items[batch[:3]] = batch.items
                if self._replica == REPLICA:
                    here.learn(batch, [(self._names.get(part.name, ""), part.duration_ns) for part in self._parts])
                rows += self._place_batch(batch)
            elif kind == stage_log.PART:
                self._parts_from = self._parts_from if self._parts else number
                self._parts.append(Part(*fields[: len(Part._fields)]))
            elif kind == stage_log.SEND:
                rows += self._place_send(Send(*fields[: len(Send._fields)]), items)
            elif kind == stage_log.SPAN:
                rows.append(self._place_span(Span(*fields[: len(Span._fields)]), items))
            elif kind == stage_log.NAME:
                self._names[fields[0]] = decode_text(fields[1:])
            elif kind == stage_log.NOTE:
                self.notes.append(decode_text(fields[1:]))
        return rows

    def _place_batch(self, batch: Batch) -> Iterable[Row]:
        """Return the stages of a batch as consecutive rows: in truth they alternate, but only the sums are known."""
        parts = [part for part in self._parts if part[:3] == batch[:3]]
        self._parts.clear()
        place = batch[:3]
        if batch.picked_ns > batch.asked_ns:
            wait_ns = batch.picked_ns - batch.asked_ns
            yield Row("read", self._replica, "input_wait", None, *place, batch.asked_ns, wait_ns, None, batch.items)
        read_ns, transforms = self._divide(batch, parts)
        read_cpu_ns = min(batch.read_cpu_ns, read_ns) if batch.timed else None
        longest = (_known(batch.longest_ns), _known(batch.longest_item))
        size = _known(batch.read_bytes)
        opened = unpack_opened(batch.opened) or (None, None)
        yield self._work("read", None, batch, batch.picked_ns, (read_ns, read_cpu_ns), size, *longest, *opened)
        at = batch.picked_ns + read_ns
        for name, length_ns, part in transforms:
            cpu_ns = min(part.cpu_ns, length_ns) if part else None
            longest = (part.longest_ns, _known(part.longest_item)) if part else (None, None)
            yield self._work("transform", name, batch, at, (length_ns, cpu_ns), None, *longest)
            at += length_ns
        start_ns = max(batch.done_ns - batch.collate_ns, at)
        cpu_ns = min(batch.collate_cpu_ns, batch.collate_ns)
        yield self._work("collate", None, batch, start_ns, (batch.collate_ns, cpu_ns))

    def _divide(self, batch: Batch, parts: Sequence[Part]) -> tuple[int, list[tuple[str, int, Part | None]]]:
        shares = self._shares
        if not batch.timed:
            read_ns, divided = shares.divide(batch.read_ns)
            return read_ns, [(name, length_ns, None) for name, length_ns in divided]
        named = [(self._names.get(part.name, ""), part.duration_ns, part) for part in parts]
        shares.add(batch.read_ns, ((name, length_ns) for name, length_ns, _ in named))
        return batch.read_ns, list(named)

    def _work(
        self,
        stage: str,
        detail: str | None,
        batch: Batch,
        start_ns: int,
        spent: tuple[int, int | None],
        *rest: int | None,
    ) -> Row:
        return Row(stage, self._replica, "work", detail, *batch[:3], start_ns, *spent, batch.items, *rest)

    def _place_send(self, send: Send, items: OrderedDict[tuple[int, ...], int]) -> Iterable[Row]:
        """Return the rows of a send: work and wait.

        The work is pickling and the processor time of writing. The wait is for the pipe's lock and for room in the
        pipe.
        """
        count = items.get(send[:3], 0)
        written_ns = send.written_ns - send.locked_ns
        wait_ns = (send.locked_ns - send.pickled_ns) + max(written_ns - send.write_cpu_ns, 0)
        if wait_ns < _SHORTEST_SEND_WAIT_NS:
            wait_ns = 0
        work_ns = send.written_ns - send.taken_ns - wait_ns
        cpu_ns = min(send.cpu_ns, work_ns)
        place = send[:3]
        yield Row("send", self._replica, "work", None, *place, send.taken_ns, work_ns, cpu_ns, count, send.bytes)
        if wait_ns:
            at = send.written_ns - wait_ns
            yield Row("send", self._replica, "output_wait", None, *place, at, wait_ns, None, count)

    def _place_span(self, span: Span, items: OrderedDict[tuple[int, ...], int]) -> Row:
        batch = _known(span.batch)
        count = span.items or items.get(span[:3], 0)
        stage, kind = stage_log.STAGES[span.stage], stage_log.KINDS[span.kind]
        place = (span.loader, span.epoch, batch, span.start_ns, span.duration_ns)
        return Row(stage, self._replica, kind, None, *place, _known(span.cpu_ns), count, span.bytes or None)


def _known(value: int) -> int | None:
    return None if value == UNKNOWN else value


REPLICA = -1
_MOST_OPEN = 4096
_COLUMNS = ("loader", "epoch", "batch", "start_ns", "duration_ns")
Key = tuple[int, int, int]
Ints = npt.NDArray[np.int64]


@dataclass
class _Division(_Shares):
    """The shares of one loader without workers, of collate too. `items` is the number of samples of the last timed
    batch. `fetch_ns` and `work_ns` are sums over the batches that have rows: of their fetches, and of the work in these.
    """

    collate_ns: int = 0
    items: int = 0
    work_ns: int = 0
    fetch_ns: int = 0

    def spread(self, fetch_ns: Ints) -> tuple[list[tuple[str, str | None]], Ints]:
        """Return (stage, transform or None) of each stage, and an array of ns of shape (fetches, stages)."""
        stages = [("read", None), *(("transform", name) for name in self.parts_ns), ("collate", None)]
        sums = np.array([self.read_ns, *self.parts_ns.values(), self.collate_ns], np.float64)
        share = min(self.work_ns / self.fetch_ns, 1.0) if self.fetch_ns else 1.0
        whole = sums.sum()
        taken = np.outer(fetch_ns * share, sums / whole if whole else np.eye(1, len(sums))[0])
        return stages, taken.astype(np.int64)


class BatchesHere:
    """Batches made without workers: `learn` sums the stages of timed ones, `divide` splits the fetches of others."""

    def __init__(self) -> None:
        self._divisions: dict[int, _Division] = {}
        # Batches that have rows already, but whose fetch has not been seen yet.
        self._written: OrderedDict[Key, int] = OrderedDict()

    @property
    def is_empty(self) -> bool:
        return not self._divisions

    def learn(self, batch: Batch, parts: Iterable[tuple[str, int]]) -> None:
        """Note a batch that has rows of `stages`; if it was timed, add its stages to the loader's sums."""
        self._written[batch[:3]] = batch.done_ns - batch.picked_ns
        if len(self._written) > _MOST_OPEN:
            self._written.popitem(last=False)
        if batch.timed:
            division = self._divisions.setdefault(batch.loader, _Division())
            division.add(batch.read_ns, parts)
            division.collate_ns += batch.collate_ns
            division.items = batch.items

    def divide(self, fetches: pa.Table) -> list[dict[str, Any]]:
        """Return columns of `stages`, a mapping per loader, for those fetches whose batches have no rows yet."""
        loaders, epochs, batches, starts, durations = (fetches[name].to_numpy() for name in _COLUMNS)
        samples = fetches["samples"].fill_null(0).to_numpy()
        keys = zip(loaders.tolist(), epochs.tolist(), batches.tolist(), durations.tolist(), strict=True)
        rest = np.array([not self._is_written(key, took_ns) for *key, took_ns in keys], bool)
        made = []
        for loader, division in self._divisions.items():
            chosen = np.flatnonzero(rest & (loaders == loader))
            if len(chosen):
                items = np.where(samples[chosen] > 0, samples[chosen], division.items)
                place = {"loader": loaders[chosen], "epoch": epochs[chosen], "batch": batches[chosen], "items": items}
                made.append(_lay_out(division, place, starts[chosen], durations[chosen]))
        return made

    def checkpoint(self) -> dict[str, Any]:
        divisions = {str(loader): vars(division) for loader, division in self._divisions.items()}
        return {"divisions": divisions, "written": [[*key, took_ns] for key, took_ns in self._written.items()]}

    def restore(self, state: dict[str, Any]) -> None:
        self._divisions = {int(loader): _Division(**saved) for loader, saved in state["divisions"].items()}
        self._written = OrderedDict(((int(a), int(b), int(c)), took_ns) for a, b, c, took_ns in state["written"])

    def _is_written(self, key: list[int], fetch_ns: int) -> bool:
        work_ns = self._written.pop((key[0], key[1], key[2]), None)
        if work_ns is None:
            return False
        division = self._divisions.get(key[0])
        if division is not None:
            division.work_ns += work_ns
            division.fetch_ns += fetch_ns
        return True


def _lay_out(division: _Division, place: dict[str, Ints], starts: Ints, durations: Ints) -> dict[str, Any]:
    """Return columns of `stages` for fetches of one loader: the stages of a batch one after the other, the last one
    ending with the fetch. `place` has the columns loader, epoch, batch and items, one value per fetch.
    """
    stages, taken = division.spread(durations)
    count = len(stages)
    begins = (starts + durations - taken.sum(1))[:, None] + np.cumsum(taken, 1) - taken
    rows = len(starts)
    return {
        "stage": [stage for stage, _ in stages] * rows,
        "detail": [detail for _, detail in stages] * rows,
        "replica": [REPLICA] * (rows * count),
        "kind": ["work"] * (rows * count),
        "start_ns": begins.ravel(),
        "duration_ns": taken.ravel(),
        **{name: np.repeat(values, count) for name, values in place.items()},
    }


ASSEMBLER = StageAssembler
