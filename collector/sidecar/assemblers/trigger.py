"""Detailed windows that open by themselves: the steps are watched here, beside the training, as they become rows.

Where libkineto was armed it takes them on a thread of its own (`collector.sidecar.on_demand`); else the training thread
takes them.

`Profiler(triggers=False)` switches it off, and so does `window=None`. What a window was opened for is noted in
rank.json, `facts` → `triggers`.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa

from collector.notes import WORDS_FILE, Notes, read_notes
from collector.ring.clock import Clock
from collector.ring.on_demand import is_own_folder, remove_folder
from collector.ring.orders import Order, read_order, send_order
from collector.schema.layout import events_path
from collector.schema.manifest import Warn
from collector.sidecar.assembler import Assembler
from collector.sidecar.on_demand import OnDemand
from collector.sidecar.process import is_running
from collector.sidecar.triggers import Finding, Step, StepWatch

MOST_WINDOWS = 5
LEAST_APART_NS = 300_000_000_000
_COLUMNS = ("kind", "step", "start_ns", "duration_ns", "data_wait_ns", "loader_start_ns", "detailed")
_log = logging.getLogger("stepscope")


class TriggerAssembler(Assembler):
    """Makes no table. At most one window in five minutes and five in a run; what was ordered by hand comes first."""

    def __init__(self, rank_folder: Path, clock: Clock) -> None:
        super().__init__(rank_folder, clock)
        notes = read_notes(rank_folder)
        window = notes.options.get("window", {})
        self._count = int(window.get("count", 0))
        # The window that the option asks for comes first: an order now would take its place.
        self._from_step = int(window.get("first", 0)) + self._count
        self._is_on = bool(notes.options.get("triggers", True)) and self._count > 0 and not notes.finished
        self._log_file = events_path(rank_folder) / WORDS_FILE
        self._watch = StepWatch()
        self._sent: list[dict[str, Any]] = []
        self._problems: list[Warn] = []
        self._on_demand = _listen(notes, events_path(rank_folder)) if not notes.finished else None

    def poll(self) -> dict[str, pa.Table]:
        if self._on_demand is not None and (problem := self._on_demand.poll(self._watch.usual_ns)):
            self._problems = [Warn("on_demand", problem)]
        return {}

    def finish(self) -> dict[str, pa.Table]:
        if self._on_demand is not None:
            self.poll()
            self._on_demand.close()
            self._on_demand = None
        return {}

    def watch(self, table: str, rows: pa.Table) -> None:
        if not self._is_on or table != "steps":
            return
        for row in rows.select(_COLUMNS).to_pylist():
            if row["kind"] != "train":
                continue
            if self._on_demand is not None:
                start = row["start_ns"] + self.clock.epoch_unix_ns
                self._on_demand.see(row["step"], start, start + row["duration_ns"])
            waits, starts = row["data_wait_ns"], row["loader_start_ns"] > 0
            finding = self._watch.see(Step(row["step"], row["duration_ns"], waits, starts, row["detailed"]))
            if finding is not None:
                self._order(finding, row["start_ns"] + row["duration_ns"])

    def describe(self) -> dict[str, Any]:
        facts = {"facts": {"triggers": self._sent}} if self._sent else {}
        return facts | ({"warnings": self._problems} if self._problems else {})

    def checkpoint(self) -> dict[str, Any]:
        return {"sent": self._sent}

    def restore(self, state: dict[str, Any]) -> None:
        self._sent = list(state["sent"])

    def _order(self, finding: Finding, at_ns: int) -> None:
        if finding.step < self._from_step or len(self._sent) >= MOST_WINDOWS:
            return
        if self._sent and at_ns - self._sent[-1]["at_ns"] < LEAST_APART_NS:
            return
        try:
            waiting = read_order(self._log_file)
            if waiting is not None and waiting.last > finding.step:
                return
            on_demand = self._order_on_demand(finding.trigger)
            if not on_demand:
                send_order(self._log_file, Order(0, self._count, finding.trigger))
        except (OSError, ValueError) as error:
            _log.warning("stepscope: no detailed window for %s: %s", finding.text, error)
            return
        entry = {"trigger": finding.trigger, "step": finding.step, "at_ns": at_ns, "text": finding.text}
        self._sent.append({**entry, "on_demand": on_demand})

    def _order_on_demand(self, trigger: str) -> bool:
        return self._on_demand is not None and self._on_demand.order(trigger, self._count, self._watch.usual_ns)


def _listen(notes: Notes, events: Path) -> OnDemand | None:
    """Be libkineto's daemon where profiler-run has armed it; without, windows are taken in the process."""
    folder = Path(notes.on_demand)
    if not (notes.on_demand and is_own_folder(folder)):
        return None
    if not is_running(notes):
        remove_folder(folder)  # of a training that was killed together with its sidecar
        return None
    try:
        return OnDemand(folder, events, notes.pid, memory=bool(notes.options.get("memory")))
    except OSError as error:
        _log.debug("stepscope: no windows on demand: %s", error)
        return None


ASSEMBLER = TriggerAssembler
