"""Log a run to the user's tracker: live means while it trains, its figures, verdict and report at the end.

The training thread only looks for the user's run. A thread of its own reads what the recorder process has written, and
calls the tracker, whose calls may wait for a network.
"""

from __future__ import annotations

import importlib
import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from collector.edge import Edge, attempt, log_failure
from collector.format.recent import RECENT_STEPS, RecentSteps, read_recent
from collector.format.schema.layout import rank_path
from collector.format.schema.removal import scratch_folder
from collector.notebook.run import Run
from collector.plugins import explain_failure
from collector.session.recording import Recording
from collector.sidecar.process import has_ended
from collector.trackers import Tracker, open_tracker

EVERY_S = 3.0
"""Least time between two live means. The recorder process writes new steps that often, too."""
PATIENCE_S = 10.0
"""How long the end of a training waits for the tracker, and before that for the other ranks of its job."""
STOP_S = 1.0
"""How long the end of a recording waits for a live mean."""
_LATE = ("pandas", "concurrent.futures.process", "concurrent.futures.thread")
"""Modules for reading a run. They are imported before the training: pandas takes 0.2 s, and an interpreter that exits
cannot import the others."""
_LOOK_S = 1.0
_POLL_S = 0.1
_log = logging.getLogger("stepscope")


def open_tracking(recording: Recording, on_found: Callable[[], None]) -> Tracking | None:
    """Begin to log a recording as its option `log_to` says; None without that option, on ranks other than 0, and where
    the library is missing. `on_found` is called on the training thread once the user's run is there."""
    log_to, place = recording.options.log_to, recording.place
    if not log_to or place.rank:
        return None
    name = recording.options.name_tracker()

    def fail(error: Exception) -> None:
        text = f"Nothing is logged to {name}: {error}. The training and its recording go on."
        recording.context.warn("log_to", text)
        _log.warning("stepscope: %s", text)

    tracker = attempt(lambda: open_tracker(log_to, place.run_path), fail)
    if tracker is None:
        return None
    for module in _LATE:
        importlib.import_module(module)
    return Tracking(tracker, name, recording, on_found)


class Tracking:
    """The user's tracker, and the thread that logs to it. The first failure ends the logging."""

    def __init__(self, tracker: Tracker, name: str, recording: Recording, on_found: Callable[[], None]) -> None:
        self._tracker = tracker
        self._name = name
        self._run_path = recording.place.run_path
        self._context = recording.context
        self._on_found = on_found
        self._next_look_s = 0.0
        self._steps = self._logged = 0
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._problem = ""
        self._context.occasions.append(self._look)

    @property
    def is_found(self) -> bool:
        """Whether the user's run in the tracker is known."""
        return self._thread is not None

    def stop(self) -> None:
        """Log no more live means. The interpreter aborts if it ends while a thread reads a table, so wait for that."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(STOP_S)

    def conclude(self, judge: Callable[[Path], Sequence[str]]) -> None:
        """Log what is known at the end, and wait for that, but not for ever. `judge` returns the lines of the verdict
        and writes the report to the path."""
        self.stop()
        self._find()
        if self._problem or self._thread is None:
            if not self._problem:
                _log.warning("stepscope: nothing is logged to %s: it had no active run before analyse()", self._name)
            return
        with scratch_folder() as folder:
            report = folder / "report.html"
            lines = judge(report)
            last = threading.Thread(target=self._send_last, args=(lines, report), daemon=True)
            last.start()
            last.join(PATIENCE_S)
        if last.is_alive():
            _log.warning("stepscope: %s did not answer within %.0f s; the training goes on", self._name, PATIENCE_S)

    def await_ranks(self, world_size: int) -> bool:
        """Wait until the tables of all ranks are written. Return whether they are: one verdict needs them all."""
        until_s = time.monotonic() + PATIENCE_S
        while not all(has_ended(rank_path(self._run_path, rank)) for rank in range(world_size)):
            if time.monotonic() > until_s:
                return False
            time.sleep(_POLL_S)
        return True

    def _look(self, step: int) -> None:
        self._steps = step
        if self._problem:
            self._context.warn("log_to", self._problem)
        elif self._thread is None and time.monotonic() >= self._next_look_s:
            self._next_look_s = time.monotonic() + _LOOK_S
            self._find()

    def _find(self) -> None:
        with Edge(self._fail):
            if self._thread is None and self._tracker.find():
                self._thread = threading.Thread(target=self._follow, name="stepscope-tracker", daemon=True)
                self._thread.start()
                self._on_found()

    def _follow(self) -> None:
        while not self._ending.wait(EVERY_S) and not self._problem:
            if self._steps - self._logged >= RECENT_STEPS:
                with Edge(self._fail):
                    self._send_recent()

    def _send_recent(self) -> None:
        found = read_recent(Run(self._run_path).rank(0))
        if found is not None and found.last - self._logged >= RECENT_STEPS:
            self._tracker.log(_name_means(found), found.last)
            self._logged = found.last

    def _send_last(self, lines: Sequence[str], report: Path) -> None:
        assert self._thread is not None
        self._thread.join()
        if self._problem:
            return
        with Edge(self._fail):
            texts = {"stepscope/verdict": lines[0], "stepscope/advice": "\n".join(lines[1:])} if lines else {}
            figures: dict[str, float] = {}
            with log_failure("a run without figures is logged", level=logging.DEBUG):  # there may be no step
                figures = Run(self._run_path).metrics(0)
            self._tracker.conclude(figures, texts, report if report.is_file() else None, self._steps)

    def _fail(self, error: Exception) -> None:
        self._problem = f"Logging to {self._name} failed and is switched off: {explain_failure(error)}."
        _log.warning("stepscope: %s The training goes on.", self._problem)


def _name_means(found: RecentSteps) -> dict[str, float]:
    """Return the means under the names of `Run.metrics`, below `stepscope/live/`."""
    means = {"step_seconds": found.step_ns / 1e9, "data_wait_ratio": found.phases_ns["data_wait"] / found.step_ns}
    phases = {f"phase_seconds/{name}": mean_ns / 1e9 for name, mean_ns in found.phases_ns.items()}
    return {f"stepscope/live/{name}": value for name, value in {**means, **phases}.items()}
