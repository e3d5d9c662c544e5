"""The Profiler that `profiler-run` makes: it gives way to one of the script's own, and waits for the tables at the end."""

from __future__ import annotations

import os
import sys

from collector.session.ending import find_last_error
from collector.session.profiler import Profiler


class LaunchedProfiler(Profiler):
    """A Profiler that nobody holds: it ends with the process."""

    def _give_way(self) -> bool:
        self._state = "analysed"
        if self._recording is not None:
            self._guard(self._recording.withdraw)
        return True

    def _finish_at_exit(self) -> None:
        if self._is_elsewhere() or self._state in ("analysed", "new"):
            return
        self._note_end(find_last_error())
        self._state = "analysed"
        if self._recording is not None:
            self._guard(self._recording.finish)
            self._guard(self._write_trace)
            if self._recording.place.rank == 0:
                self._say(self._recording.count_steps())

    def _say(self, steps: str) -> None:
        path = os.path.relpath(self.output_path)
        path = path if not path.startswith("..") else str(self.output_path)
        print(
            f"profiler-run: recorded {steps} in {path}{self._name_trace()}; "
            f"show them with: profiler-server --summary-base-dir {os.path.dirname(path) or '.'}",
            file=sys.stderr,
        )
        self._tell_losses()
