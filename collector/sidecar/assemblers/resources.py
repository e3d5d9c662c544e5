"""The table `resources`: samples of the use of processors, memory, disks and GPUs, by the whole machine, by the
training process and by its workers.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from collector.format.parts import build_table_from_rows
from collector.notes import read_notes
from collector.ring.clock import Clock
from collector.sidecar.assembler import Assembler
from collector.sidecar.gpu import Gpus
from collector.sidecar.usage import Machine, Pressure, Processes, PythonThreads

EVERY_S = 0.5
LOOK_AGAIN = 20
"""Number of samples after which the GPUs of the training process are searched for a second and last time."""


class ResourcesAssembler(Assembler):
    """The assembler of resource samples: one every EVERY_S seconds, none of a finished run."""

    def __init__(self, rank_folder: Path, clock: Clock) -> None:
        super().__init__(rank_folder, clock)
        notes = read_notes(rank_folder)
        self._is_on = bool(notes.options.get("resources", True)) and not notes.finished
        self._pid = notes.pid
        self._next = time.monotonic()
        self._machine = Machine(notes.pid)
        self._processes = Processes(rank_folder, notes.pid)
        self._pressure = Pressure(notes.pid) if self._is_on else None
        self._threads = PythonThreads(rank_folder, notes.pid)
        self._gpus = Gpus((), None, notes.pid)
        self._samples = 0

    def poll(self) -> dict[str, pa.Table]:
        if not self._is_on or time.monotonic() < self._next:
            return {}
        self._next = time.monotonic() + EVERY_S
        if self._samples in (1, LOOK_AGAIN):
            self._find_gpus()
        self._samples += 1
        now = self.clock.now()
        pressed = self._pressure.sample() if self._pressure is not None else ()
        processes = [*self._processes.sample(), *self._threads.sample()]
        samples = [*self._machine.sample(), *processes, *pressed, *self._gpus.sample()]
        rows = [{"start_ns": now, **sample._asdict()} for sample in samples]
        return {"resources": build_table_from_rows("resources", rows)}

    def finish(self) -> dict[str, pa.Table]:
        return {}

    def describe(self) -> dict[str, Any]:
        return {"signals": [self._gpus.signal]} if self._gpus.signal else {}

    def _find_gpus(self) -> None:
        try:
            devices = read_notes(self.rank_folder).devices
        except (OSError, ValueError):
            return
        # The sidecar inherits the trainer's environment, as it was when the recording began.
        self._gpus = Gpus(devices, os.environ.get("CUDA_VISIBLE_DEVICES"), self._pid)


ASSEMBLER = ResourcesAssembler
