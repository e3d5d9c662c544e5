"""The Profiler with which `stepscope run` records a script that makes none. At the end it waits for the tables."""

from __future__ import annotations

import os
from pathlib import Path

from collector.edge import say
from collector.format.schema.wording import format_number_of
from collector.session.ending import find_last_error
from collector.session.profiler import Profiler


class LaunchedProfiler(Profiler):
    """A Profiler that no script holds. It ends with the process, or gives way to a Profiler that the script makes."""

    def _give_way(self, to: Path) -> bool:
        self._state = "analysed"
        self._stop_tracking()
        if self._recording is not None:
            steps = self._recording.context.steps.ended
            self._guard(self._recording.withdraw)
            if self._recording.place.rank == 0 and to.absolute() != self.output_path.absolute():
                held = format_number_of(steps, "step") if steps else "nothing"
                say(
                    f"the script makes a Profiler of its own, which records to {to}; "
                    f"{held} {'were' if steps > 1 else 'was'} recorded to {self.output_path}"
                )
        return True

    def _finish_at_exit(self) -> None:
        if self._is_elsewhere() or self._state in ("analysed", "new"):
            return
        self._note_end(find_last_error())
        self._state = "analysed"
        if self._recording is not None:
            self._guard(self._recording.settle)
            self._stop_tracking()
            self._guard(self._finish)

    def _find_shown_path(self) -> Path:
        path = os.path.relpath(self.output_path)
        # Below / a path without its slash looks wrong.
        return self.output_path if path.startswith("..") or os.getcwd() == os.path.sep else Path(path)
