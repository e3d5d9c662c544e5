"""Start, supervise and await the recorder process (sidecar), which makes the tables, from the training process."""

from __future__ import annotations

import logging
import signal
import subprocess
import time
from pathlib import Path

import psutil

from collector.format.schema.errors import StepscopeError
from collector.format.schema.layout import events_path, spell_recovery
from collector.ring.words import WordLog
from collector.sidecar.coverage_warnings import spell_problem
from collector.sidecar.process import find_log, finish_rank, has_ended, start_sidecar

PATIENCE_S = 10.0
"""How long the end of a training waits for an idle recorder process."""
FINISH_S = 120.0
"""How long the end of a training waits for a recorder process that works."""
MOST_STARTS = 4
_LOOK_S = 1.0
_POLL_S = 0.05
_log = logging.getLogger("stepscope")


class Beside:
    """The recorder process of one rank. If that process is gone at the end, `finish` writes the tables itself."""

    def __init__(self, rank_folder: Path, log: WordLog) -> None:
        self._rank_folder = rank_folder
        self._events_log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._looked = time.monotonic()

    @property
    def pid(self) -> int:
        """The process id, 0 if there is no process."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Start the recorder process. Raises OSError if it cannot be started."""
        self._starts += 1
        self._process = start_sidecar(self._rank_folder, self._events_log.share())

    def look_after(self) -> str:
        """Once a second, start the process again if it has ended, up to MOST_STARTS starts in all.

        Return a warning if it had to be started again, "" otherwise.
        """
        now = time.monotonic()
        if self._process is None or now - self._looked < _LOOK_S:
            return ""
        self._looked = now
        code = self._process.poll()
        if code is None or self._starts >= MOST_STARTS or not events_path(self._rank_folder).is_dir():
            return ""
        return self._start_again(code)

    def leave(self) -> None:
        """Let the process write the rest of the tables, without waiting for it. If it has ended or the system has
        stopped it, a new process takes its place."""
        if self._process is not None and (self._process.poll() is not None or self._is_stopped()):
            self.kill()
            if events_path(self._rank_folder).is_dir():
                self.start()

    def finish(self) -> str:
        """Wait until the tables are written, or write them here. Return the reason if tables are missing, else ""."""
        try:
            return self._wait() or self._replace_killed() or self._finish_here()
        except OSError as error:
            return self._explain(error)
        except (ValueError, StepscopeError) as error:
            return f"{error}; run {spell_recovery(self._rank_folder)}"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)

    def _start_again(self, code: int) -> str:
        cause = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        try:
            self.start()
        except OSError as error:
            return f"The recorder process {cause} and could not be started again ({error}); analyse() does its work."
        return (
            f"The recorder process {cause} and was started again (the system ends processes by signal 9 when its memory "
            "is full). What the training did meanwhile is recorded."
        )

    def _wait(self) -> str:
        """Wait for the process while it uses processor time. Return "" once it is gone, else why it is left alone."""
        process = self._process
        if process is None:
            return ""
        begun = moved = time.monotonic()
        used = -1.0
        while process.poll() is None:
            now, before = time.monotonic(), used
            used = self._measure_work()
            moved = now if used != before else moved
            if now - moved > PATIENCE_S:
                return self._give_up()
            if now - begun > FINISH_S:
                return f"the recorder process ({process.pid}) still writes; open the run when it has ended"
            time.sleep(_POLL_S)
        return ""

    def _measure_work(self) -> float:
        assert self._process is not None
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.Error:
            return 0.0
        return float(times.user + times.system)

    def _give_up(self) -> str:
        """If the system has stopped the process, kill it and return "": this process then does its work. Else leave the
        process alone and return why.
        """
        assert self._process is not None
        if self._is_stopped():
            _log.warning("stepscope: the recorder process was stopped; it is ended, and its work is done here")
            self.kill()
            self._process = None
            return ""
        return (
            f"the recorder process ({self._process.pid}) has done nothing for {PATIENCE_S:.0f} s (the system holds it, as "
            f"it does where a disk does not answer); when it has ended, {spell_recovery(self._rank_folder)} completes "
            "the run"
        )

    def _replace_killed(self) -> str:
        """Let a new process finish the work of a killed one. Return the reason if the run is still incomplete, else "".

        The system kills processes when memory is full. If the work were done in this process, the system might kill the
        training.
        """
        if not self._was_killed() or has_ended(self._rank_folder) or not events_path(self._rank_folder).is_dir():
            return ""
        try:
            self.start()
        except OSError:
            return ""
        reason = self._wait()
        if reason or not self._was_killed():
            return reason
        self._save_log()
        return (
            "the recorder process was killed each time, which the system does where memory is full; "
            f"{spell_recovery(self._rank_folder)} completes the run"
        )

    def _was_killed(self) -> bool:
        return self._process is not None and self._process.returncode == -signal.SIGKILL

    def _is_stopped(self) -> bool:
        assert self._process is not None
        try:
            return bool(psutil.Process(self._process.pid).status() in (psutil.STATUS_STOPPED, "tracing-stop"))
        except psutil.Error:
            return False

    def _finish_here(self) -> str:
        folder = self._rank_folder
        if not folder.is_dir():
            return f"{folder} was removed while it was recorded, and the run with it"
        memory = self._events_log.share()
        if finish_rank(folder, PATIENCE_S, None if memory is None else find_log(memory)):
            return ""
        return f"another process records {folder}; when it has ended, {spell_recovery(folder)} completes the run"

    def _explain(self, error: OSError) -> str:
        self._save_log()
        text = spell_problem(error, self._rank_folder)
        return text[0].lower() + text[1:].rstrip(".")

    def _save_log(self) -> None:
        try:
            self._events_log.save()
        except OSError as other:
            _log.debug("stepscope: the event log is not kept: %s", other)
