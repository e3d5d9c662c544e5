"""The tables `steps`, `phases`, `fetches`, `queues`, `collectives` and `device_phases`, from the event log of the
training thread.
"""

from __future__ import annotations

import time
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from collector.format.parts import build_table_from_rows
from collector.format.phases import COMMUNICATION, PHASE_NAMES
from collector.format.schema.layout import events_path
from collector.notes import WORDS_FILE, read_notes
from collector.ring.clock import Clock
from collector.ring.codes import OWN_QUEUE
from collector.ring.words import WordReader
from collector.sidecar.assembler import Assembler
from collector.sidecar.collectives import CollectiveRows
from collector.sidecar.coverage_warnings import Seen, warn_of_lost_steps
from collector.sidecar.steps.columns import list_fetches, list_queues, list_steps
from collector.sidecar.steps.machine import StepMachine
from collector.sidecar.steps.row_keeping import Done, decode_state, encode_state
from collector.sidecar.steps.rows import UNKNOWN, Moment
from collector.sidecar.steps.steady import Ints, Steady, SteadyFeed

STEPS_WITH_PHASES = 5_000
"""Number of rows of `steps`, from the first on, that get rows of `phases`. Later rows get them only in detailed
windows."""
_HOOKS = ("fetch", "forward", "backward", "update", "zero")
_FETCH_COLUMNS = ("step", "index", "loader", "epoch", "batch", "start_ns", "duration_ns", "samples")
_QUEUE_COLUMNS = ("step", "start_ns", "loader", "word", "batch")

Rows = list[dict[str, Any]]


class RowListener(Protocol):
    def see_row(self, done: Done) -> None: ...

    def see_steady(self, steady: Steady) -> None: ...


class StepsAssembler(Assembler):
    def __init__(self, rank_folder: Path, clock: Clock) -> None:
        super().__init__(rank_folder, clock)
        self._index = 0
        self._lost_before = 0
        self._capacities: dict[int, int] = {}
        self._has_looked = False
        self._with_pin_queue: set[int] = set()
        self._data_pipeline: bool | None = None
        self._seen = Seen()
        self._is_over = False
        self._ended = 0
        self._calls = dict.fromkeys(_HOOKS, 0)
        self._reader: WordReader | None = None
        self._log_file = self._copy = events_path(rank_folder) / WORDS_FILE
        self._machine = StepMachine(self._add)
        self._feed = SteadyFeed(self._machine, self._add_steady)
        self._rows: dict[str, Rows] = _empty_rows()
        self._fetches: list[tuple[int, ...]] = []
        self._queues: list[tuple[int, ...]] = []
        self._pieces: dict[str, list[pa.Table]] = {}
        self._collectives = CollectiveRows(rank_folder, clock)
        self._last_moment: dict[str, Any] | None = None
        self.looked_ns = 0
        """Time of the last read of the log, a perf_counter_ns reading."""
        self.listeners: list[RowListener] = []
        """Receivers of each complete row, in time order."""

    def attach(self, log: Path) -> None:
        self._log_file = log

    def poll(self) -> dict[str, pa.Table]:
        self._read_on()
        return self._take()

    def finish(self) -> dict[str, pa.Table]:
        self._read_on()
        self._last_moment = self._describe_moment()
        self._machine.finish()
        self._is_over = True
        self._collectives.finish()
        self._ended = self._reader.steps if self._reader else 0
        return self._take()

    def _read_on(self) -> None:
        self.looked_ns = time.perf_counter_ns()
        self._has_looked = False
        reader = self._open_reader()
        while reader is not None:
            position, lost = reader.position, reader.lost
            words = reader.read()
            if reader.lost != lost:
                self._machine.lose()
            self._machine.position = reader.position - len(words)
            self._feed.feed(words, self._may_skip)
            if reader.position == position or reader.lost == lost:
                return  # after a hole there may be more

    @property
    def _lost(self) -> int:
        return self._lost_before + (self._reader.lost if self._reader else 0)

    def describe(self) -> dict[str, Any]:
        steps = max(self._machine.state.step, self._ended)
        moment = self._last_moment if self._is_over else self._describe_moment()
        return {
            "facts": {"moment": moment} if moment else {},
            "events_lost": self._lost,
            "cost": self._describe_cost(),
            "warnings": warn_of_lost_steps(steps, self._seen.steps) + self._seen.list_warnings(self._is_over),
        }

    def _describe_cost(self) -> dict[str, Any]:
        """Return the calls of hooks in all steps (batches, without training), the steps' number and their time."""
        seen = self._seen
        steps, time_ns = (seen.steps, seen.train_ns) if seen.steps else (seen.batches, seen.batches_ns)
        return {"calls": self._calls, "steps": steps, "train_ns": time_ns}

    def has_trained(self) -> bool:
        return self._machine.state.step > 0

    def find_first_end(self) -> int:
        return self._seen.first_end_ns

    def read_moment(self) -> Moment | None:
        """Return the state of the training thread at the last read of the log; None in a pause or without a row."""
        return None if self._machine.is_paused else self._machine.find_moment()

    def _describe_moment(self) -> dict[str, Any] | None:
        """Return the state of the training thread for the detection of hangs; None if no collective was called yet."""
        moment = self._machine.find_moment()
        if moment is None or not (self._collectives.count() + moment.ended or moment.begun):
            return None
        return {
            "step": moment.step + 1,
            "phase": PHASE_NAMES[moment.phase] if moment.phase != UNKNOWN else "",
            "after": PHASE_NAMES[moment.previous] if moment.previous != UNKNOWN else "",
            "in_collective": moment.is_collective,
            "since_ns": self.clock.to_run(moment.since),
            "ended": self._collectives.count() + moment.ended,
            "next": self._collectives.describe_next(moment.ended, moment.begun),
            "groups": self._collectives.describe_groups(moment.calls),
            "backward_group": self._collectives.backward_group,
        }

    def checkpoint(self) -> dict[str, Any]:
        return {
            "machine": encode_state(self._machine.state),
            "index": self._index,
            "lost": self._lost,
            "seen": vars(self._seen).copy(),
            "calls": self._calls,
            **self._collectives.checkpoint(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._machine = StepMachine(self._add, decode_state(state["machine"]))
        self._feed = SteadyFeed(self._machine, self._add_steady)
        self._index = state["index"]
        self._lost_before = state["lost"]
        # Another version may have written sums that this one does not keep.
        self._seen = Seen(**{name: value for name, value in state["seen"].items() if name in Seen.__dataclass_fields__})
        self._calls = dict(state["calls"])
        self._collectives.restore(state)

    def release(self) -> None:
        reader = self._reader
        if reader is not None:
            # A row that fills half of the log (inference without a loader) cannot hold the rest of it up.
            reader.release(max(self._machine.state.position, reader.position - reader.capacity // 2))

    def _open_reader(self) -> WordReader | None:
        if self._reader is None and self._log_file.is_file():
            copy = None if self._log_file == self._copy else self._copy
            self._reader = WordReader(self._log_file, self._machine.state.position, copy)
        return self._reader

    def _take(self) -> dict[str, pa.Table]:
        self._rows["collectives"] = self._collectives.take()
        self._rows["device_phases"] = self._list_device_phases()
        self._build_rows()
        pieces, self._pieces = self._pieces, {}
        return {name: pa.concat_tables(tables).unify_dictionaries() for name, tables in pieces.items()}

    def _build_rows(self) -> None:
        rows, self._rows = self._rows, _empty_rows()
        self._keep({name: build_table_from_rows(name, entries) for name, entries in rows.items() if entries})
        fetches, self._fetches = self._fetches, []
        queues, self._queues = self._queues, []
        if fetches:
            self._keep_fetches(_name_columns(_FETCH_COLUMNS, fetches))
        if queues:
            columns = _name_columns(_QUEUE_COLUMNS, queues)
            self._keep_queues(columns, columns.pop("word"))

    def _keep(self, tables: dict[str, pa.Table]) -> None:
        for name, table in tables.items():
            self._pieces.setdefault(name, []).append(table)

    def _keep_fetches(self, columns: dict[str, Ints]) -> None:
        self._keep({"fetches": list_fetches(columns, self.clock)})

    def _keep_queues(self, columns: dict[str, Ints], words: Ints) -> None:
        self._keep({"queues": list_queues(columns, words, self._capacities, self._with_pin_queue, self.clock)})

    def _may_skip(self) -> bool:
        """Return whether similar steps may be processed together. Such steps get no rows of `phases`."""
        return self._index >= STEPS_WITH_PHASES and self._data_pipeline is not None

    def _add_steady(self, steady: Steady) -> None:
        for listener in self.listeners:
            listener.see_steady(steady)
        self._look_for_loaders(set(np.unique(steady.loaders).tolist()))
        self._build_rows()
        self._keep({"steps": list_steps(steady, self._describe_step(steady.example), self._index, self.clock)})
        if self._data_pipeline:
            common = {
                "step": steady.steps,
                "start_ns": steady.starts,
                "loader": steady.loaders,
                "batch": steady.batches,
            }
            indices = np.arange(self._index, self._index + len(steady))
            samples = np.zeros_like(steady.steps) if steady.samples is None else steady.samples
            own = {"index": indices, "epoch": steady.epochs, "duration_ns": steady.fetches, "samples": samples}
            self._keep_fetches({**common, **own})
            if steady.queues is not None:
                self._keep_queues(common, steady.queues)
        self._seen.add(steady.ends - steady.starts, steady.phases)
        self._count(steady.example, len(steady))
        self._index += len(steady)

    def _add(self, done: Done) -> None:
        for listener in self.listeners:
            listener.see_row(done)
        self._rows["steps"].append(self._describe_step(done))
        self._collectives.add(done)
        if self._index < STEPS_WITH_PHASES or done.row.detailed:
            self._rows["phases"] += self._list_phases(done)
        self._look_for_loaders({sample.loader for sample in done.row.queues})
        if done.kind == "eval":
            self._seen.add_batch(done.end - done.row.start)
            if not done.step:
                self._count(done, 1)
                self._calls["call"] = self._calls.get("call", 0) + done.row.counters.forwards
        elif done.kind == "train":
            if not self._seen.steps:
                self._calls = dict.fromkeys(self._calls, 0)  # those of batches that came before the training
                self._seen.first_end_ns = self.clock.to_run(done.end)
            self._seen.add(np.array([done.end - done.row.start]), np.array([done.row.sums()]))
            self._count(done, 1)
        if self._data_pipeline:
            fetches = (fetch for fetch in done.row.fetches if fetch.loader != OWN_QUEUE)
            self._fetches += ((done.step, self._index, *fetch) for fetch in fetches)
            self._queues += ((done.step, *sample) for sample in done.row.queues)
        self._index += 1

    def _count(self, done: Done, steps: int) -> None:
        counters = done.row.counters
        numbers = (counters.fetches, counters.forwards, counters.backwards, counters.updates, counters.zeros)
        for name, number in zip(_HOOKS, numbers, strict=True):
            self._calls[name] += number * steps

    def _describe_step(self, done: Done) -> dict[str, Any]:
        row, counters = done.row, done.row.counters
        sums = row.sums()
        first = next((fetch for fetch in row.fetches if fetch.loader != OWN_QUEUE), None)
        return {
            "index": self._index,
            "step": done.step,
            "kind": done.kind,
            "start_ns": self.clock.to_run(row.start),
            "duration_ns": done.end - row.start,
            **{f"{name}_ns": value for name, value in zip(PHASE_NAMES, sums, strict=True)},
            "epoch": first.epoch if first else None,
            "loader": first.loader if first else None,
            "batch": first.batch if first else None,
            "fetches": counters.fetches,
            "forwards": counters.forwards,
            "no_grad_forwards": counters.no_grad,
            "backwards": counters.backwards,
            "optimizer_steps": counters.updates,
            "skipped_updates": counters.skipped,
            "samples": counters.samples or None,
            "loader_start_ns": counters.loader_start,
            "gc_ns": counters.gc,
            "communication_total_ns": sums[COMMUNICATION] + counters.hidden if counters.reductions else None,
            "communication_end_ns": row.find_communication_end() if sums[COMMUNICATION] else None,
            "detailed": row.detailed,
            "markers": done.markers,
        }

    def _list_phases(self, done: Done) -> Rows:
        return [
            {
                "step": done.step,
                "index": self._index,
                "phase": PHASE_NAMES[stretch.phase],
                "start_ns": self.clock.to_run(stretch.start),
                "duration_ns": stretch.end - stretch.start,
            }
            for stretch in done.row.stretches
        ]

    def _list_device_phases(self) -> Rows:
        times, self._machine.device_times = self._machine.device_times, []
        return [
            {"step": step, "phase": PHASE_NAMES[place], "duration_ns": time_ns}
            for step, place, time_ns in times
            if place < len(PHASE_NAMES)
        ]

    def _look_for_loaders(self, needed: Set[int]) -> None:
        """Read the notes on loaders if a needed loader is unknown, at most once per poll."""
        if not self._has_looked and (self._data_pipeline is None or not needed <= self._capacities.keys()):
            self._has_looked = True
            self._read_loaders()

    def _read_loaders(self) -> None:
        try:
            notes = read_notes(self.rank_folder)
        except (OSError, ValueError):
            return
        self._data_pipeline = notes.options.get("data_pipeline", True)
        for loader in notes.loaders:
            self._capacities[loader["id"]] = loader["num_workers"] * (loader["prefetch_factor"] or 0)
            if loader.get("pins"):
                self._with_pin_queue.add(loader["id"])


def _empty_rows() -> dict[str, Rows]:
    return {"steps": [], "phases": []}


def _name_columns(names: Sequence[str], rows: list[tuple[int, ...]]) -> dict[str, Ints]:
    return dict(zip(names, np.array(rows, np.int64).T, strict=True))


ASSEMBLER = StepsAssembler
