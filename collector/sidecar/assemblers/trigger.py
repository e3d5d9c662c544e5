"""Detailed windows that open by themselves: the steps are watched here, beside the training, as they become rows.

The training thread takes them, between two steps, and closes them before the process ends. libkineto can take windows
on a thread of its own too, but nothing can close such a window early: a process that ended while one was open died of
SIGSEGV in the destructors of torch.

`Profiler(triggers=False)` switches it off, and so does `window=None`. What a window was opened for is noted in
rank.json, `facts` → `triggers`.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa

from collector.format.schema.layout import events_path
from collector.notes import WORDS_FILE, read_notes
from collector.ring.clock import Clock
from collector.ring.orders import Order, read_order, send_order
from collector.sidecar.assembler import Assembler
from collector.sidecar.triggers import Finding, Step, StepWatch

MOST_WINDOWS = 5
LEAST_APART_NS = 300_000_000_000
_COLUMNS = ("kind", "step", "start_ns", "duration_ns", "data_wait_ns", "loader_start_ns", "detailed", "probed")
_TAKEN_AFTER = 2
"""Batches of steps that may come before the training thread has seen an order."""
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
        self._last_serial = 0
        self._hold = 0

    def attach(self, log: Path) -> None:
        self._log_file = log

    def poll(self) -> dict[str, pa.Table]:
        return {}

    def finish(self) -> dict[str, pa.Table]:
        return {}

    def watch(self, table: str, rows: pa.Table) -> None:
        if not self._is_on or table != "steps":
            return
        self._see_orders()
        for row in rows.select(_COLUMNS).to_pylist():
            if row["kind"] != "train":
                continue
            waits, starts = row["data_wait_ns"], row["loader_start_ns"] > 0
            finding = self._watch.see(
                Step(row["step"], row["duration_ns"], waits, starts, row["detailed"] or bool(row["probed"]))
            )
            if finding is not None:
                self._order(finding, row["start_ns"] + row["duration_ns"])

    def describe(self) -> dict[str, Any]:
        return {"facts": {"triggers": self._sent}} if self._sent else {}

    def checkpoint(self) -> dict[str, Any]:
        return {"sent": self._sent}

    def restore(self, state: dict[str, Any]) -> None:
        self._sent = list(state["sent"])

    def _see_orders(self) -> None:
        """Look for a new order by hand: until it is taken, one from here would replace it."""
        self._hold = max(self._hold - 1, 0)
        with contextlib.suppress(OSError):
            order = read_order(self._log_file)
            if order is not None and order.serial != self._last_serial:
                self._last_serial = order.serial
                self._hold = _TAKEN_AFTER if order.trigger == "control" else 0

    def _order(self, finding: Finding, at_ns: int) -> None:
        if self._hold or finding.step < self._from_step or len(self._sent) >= MOST_WINDOWS:
            return
        if self._sent and at_ns - self._sent[-1]["at_ns"] < LEAST_APART_NS:
            return
        try:
            waiting = read_order(self._log_file)
            if waiting is not None and waiting.last > finding.step:
                return
            send_order(self._log_file, Order(0, self._count, finding.trigger))
        except (OSError, ValueError) as error:
            _log.warning("stepscope: no detailed window for %s: %s", finding.text, error)
            return
        self._sent.append({"trigger": finding.trigger, "step": finding.step, "at_ns": at_ns, "text": finding.text})


ASSEMBLER = TriggerAssembler
