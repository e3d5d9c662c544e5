"""Pass orders to a run that records: this module watches `profiler/control.json`, which a user or the web page writes.

    {"window": {"first": 500, "count": 5}}

takes a detailed window of steps 500 to 504 on every rank, or of the next five steps if step 500 has passed. The
training thread never reads the file: a valid order becomes one word in shared memory.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa

from collector.format.schema.control import read_control
from collector.format.schema.layout import control_file, events_path
from collector.format.schema.manifest import Warn
from collector.notes import WORDS_FILE, read_notes
from collector.ring.clock import Clock
from collector.ring.windows import Order, send_order
from collector.sidecar.assembler import Assembler

_log = logging.getLogger("stepscope")


class ControlAssembler(Assembler):
    """Passes the orders in control.json to the training thread; makes no table. A faulty file is a warning."""

    kept = ("stamp", "problem")

    def __init__(self, rank_folder: Path, clock: Clock) -> None:
        super().__init__(rank_folder, clock)
        notes = read_notes(rank_folder)
        self._run_path = rank_folder.parents[1]
        self._file = control_file(self._run_path)
        self._log_file = events_path(rank_folder) / WORDS_FILE
        self._is_over = bool(notes.finished)
        self._is_off = notes.options.get("window", {}).get("count") == 0
        self._stamp: list[int] = []
        self._problem = ""

    def attach(self, log: Path) -> None:
        self._log_file = log

    def poll(self) -> dict[str, pa.Table]:
        if not self._is_over and self._has_changed():
            self._problem = self._obey()
            if self._problem:
                _log.warning("stepscope: %s", self._problem)
        return {}

    def finish(self) -> dict[str, pa.Table]:
        return {}

    def describe(self) -> dict[str, Any]:
        return {"warnings": [Warn("control_file", self._problem)] if self._problem else []}

    def _has_changed(self) -> bool:
        try:
            status = self._file.stat()
        except OSError:
            stamp = []
        else:
            stamp = [status.st_mtime_ns, status.st_size, status.st_ino]
        changed = stamp != self._stamp and bool(stamp)
        self._stamp = stamp
        return changed

    def _obey(self) -> str:
        """Send the order in control.json to the training thread. Return what is wrong with the file, "" for nothing."""
        try:
            request = read_control(self._run_path)
            if self._is_off:
                return f"{self._file} asks for a detailed window, but the option window is off for this run."
            send_order(self._log_file, Order(request.first, request.count, "control"))
        except (OSError, ValueError) as error:
            return f"{self._file} is ignored: {error}. The training is not affected."
        return ""


ASSEMBLER = ControlAssembler
