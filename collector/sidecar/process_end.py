"""How the training process ended: by which signal or exit code, and when. Its parent alone is given that, but Linux shows
it to the same user until the parent has taken it, so this process wakes at that moment."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from pathlib import Path
from typing import Any

FACT = "process_end"
_EXIT_CODE = 49
"""Place of `exit_code` in /proc/<pid>/stat behind the name: field 52 of proc_pid_stat(5)."""
_SIGNAL = 0x7F


class ProcessWatch:
    """Waits for the end of one process, on a thread of its own: what reads the log may be busy at that moment.

    Where the system has no pidfd, it only lets time pass.
    """

    def __init__(self, pid: int, is_running: bool) -> None:
        self._pid = pid
        self._end: dict[str, Any] = {}
        self._has_ended = threading.Event()
        self._thread: threading.Thread | None = None
        if is_running and hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._thread = threading.Thread(target=self._watch, args=(os.pidfd_open(pid),), daemon=True)
                self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Return after that time, or once the process has ended."""
        self._has_ended.wait(timeout_s)

    def join(self, timeout_s: float) -> None:
        """Let the thread finish with a process that has ended; at once where there is none."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def describe(self) -> dict[str, Any]:
        """Return the facts on the end of the process, none where it was not seen."""
        return {FACT: self._end} if self._end else {}

    def _watch(self, pidfd: int) -> None:
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.poll()
            status = _read_status(self._pid)
            self._end = {"at_unix_ns": time.time_ns(), **status}
        finally:
            os.close(pidfd)
            self._has_ended.set()


def _read_status(pid: int) -> dict[str, int]:
    """Return the signal or exit code of a process that its parent has not taken leave of; nothing of any other.

    Nothing of an exit code 0 either: whom the system does not show the field reads a 0 there.
    """
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        if fields[0] == "Z":
            status = int(fields[_EXIT_CODE])
            if status & _SIGNAL:
                return {"signal": status & _SIGNAL}
            return {"exit_code": status >> 8 & 0xFF} if status else {}
    return {}
