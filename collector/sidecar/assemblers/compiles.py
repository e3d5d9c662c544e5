"""The table `compiles`: compilations, recompilations and graph breaks, from the lines that the signal `compiles`
writes.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from collector.format.parts import build_table_from_rows
from collector.format.schema.layout import events_path
from collector.ring.clock import Clock
from collector.ring.compiles import read_compiles
from collector.sidecar.assembler import Assembler


class CompilesAssembler(Assembler):
    kept = ("offset",)

    def __init__(self, rank_folder: Path, clock: Clock) -> None:
        super().__init__(rank_folder, clock)
        self._offset = 0

    def poll(self) -> dict[str, pa.Table]:
        notes, self._offset = read_compiles(events_path(self.rank_folder), self._offset)
        rows = [
            {
                "step": note.step,
                "kind": note.kind,
                "start_ns": self.clock.unix_to_run(note.start_unix_ns),
                "duration_ns": note.duration_ns,
                "name": note.name,
                "reason": note.reason,
            }
            for note in notes
        ]
        return {"compiles": build_table_from_rows("compiles", rows)} if rows else {}


ASSEMBLER = CompilesAssembler
