"""The sidecar process, which makes the tables of a rank beside its training. The training process starts it; it ends
after the training. If it was killed, another process finishes its work here.

One recorder of a rank runs at a time. It holds a lock on `rank_<r>/events/recorder.lock`, which the kernel frees when
the recorder dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collector.expendable import build_environment
from collector.format.alive import is_alive
from collector.format.schema.errors import StepscopeError, TableBrokenError
from collector.format.schema.inside import open_inside
from collector.format.schema.layout import RANK_FILE, events_path, find_ranks, rank_path
from collector.format.schema.manifest import RankManifest, decode_manifest
from collector.format.schema.reading import read_small_text
from collector.notes import Notes
from collector.sidecar.recorder import Recorder
from collector.sidecar.terminal import lend_log_file

LOCK_FILE = "recorder.lock"


@contextlib.contextmanager
def hold_lock(rank_folder: Path, timeout_s: float = 0.0) -> Iterator[bool]:
    """Hold the lock of a rank during the block; yield False if another process keeps it beyond the time-out."""
    descriptor = open_inside(events_path(rank_folder) / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield _wait_for(descriptor, timeout_s)
    finally:
        os.close(descriptor)


def is_locked(rank_folder: Path) -> bool:
    if not (events_path(rank_folder) / LOCK_FILE).exists():
        return False
    with hold_lock(rank_folder) as mine:
        return not mine


def _wait_for(descriptor: int, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)


FACT = "process_end"
_EXIT_CODE = 49
"""The index of `exit_code` among the fields of /proc/<pid>/stat after the name: field 52 in proc_pid_stat(5)."""
_SIGNAL = 0x7F


class ProcessWatch:
    """A thread that waits for the end of a process, since others may be busy then; none without pidfd."""

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
        self._has_ended.wait(timeout_s)

    def join(self, timeout_s: float) -> None:
        """Wait, at most `timeout_s`, until the thread has read how the process ended; not at all without a thread."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def describe(self) -> dict[str, Any]:
        """Return the facts on the end of the process (time, signal or exit code); empty if the end was not seen."""
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
    """Return the signal or exit code of an unreaped process; {} for 0, which readers without permission see."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        if fields[0] == "Z":
            status = int(fields[_EXIT_CODE])
            if status & _SIGNAL:
                return {"signal": status & _SIGNAL}
            return {"exit_code": status >> 8 & 0xFF} if status else {}
    return {}


POLL_S = 0.2
END_S = 0.5
"""Time in seconds to wait for the watching thread to read how an ended process ended."""
TAKEOVER_S = 30.0
LOG_FILE = "sidecar.log"


def start_sidecar(rank_folder: Path, log: int | None = None) -> subprocess.Popen[bytes]:
    """Start the sidecar in a session of its own, so that a Ctrl-C for the training does not reach the sidecar.

    `log` is the descriptor of the event log, if the log is in shared memory. Raise OSError if the process cannot be
    started.
    """
    environment = {
        **build_environment(),
        # What is freed goes back to the system: the sidecar is to stay as small after weeks as it was in its first minute.
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_TRIM_THRESHOLD_": "262144",
    }
    logs = () if log is None else (log,)
    with lend_log_file() as lent, open(events_path(rank_folder) / LOG_FILE, "ab", opener=open_inside) as output:
        numbers = map(str, (os.getpid(), *logs))
        return subprocess.Popen(
            [sys.executable, "-m", "collector.expendable", "collector.sidecar", str(rank_folder), *numbers],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",  # a file of the user's in the current folder must not shadow a module
            env=environment,
            start_new_session=True,
            pass_fds=(*logs, *lent),
        )


def main(arguments: list[str]) -> int:
    """Record until the training has finished or is gone. Return 1 if another process records the rank or it fails."""
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    rank_folder = Path(arguments[0])
    trainer, *logs = map(int, arguments[1:])
    log = find_log(logs[0]) if logs else None
    with hold_lock(rank_folder, TAKEOVER_S) as mine:
        if not mine:
            logging.error("%s is recorded by another process", rank_folder)
            return 1
        if has_ended(rank_folder):
            return 0
        try:
            recorder = Recorder(rank_folder, log, trainer)
            if recorder.notes.pid != trainer:
                raise OSError(f"its notes name process {recorder.notes.pid}; {trainer} has started this one")
            record(recorder)
        except OSError as error:
            logging.error("%s is not recorded any more: %s", rank_folder, error)
            return 1
    return 0


def find_log(descriptor: int) -> Path:
    """Return the path of an event log in shared memory. The path is valid only in the process that has the descriptor."""
    return Path(f"/proc/self/fd/{descriptor}")


def record(recorder: Recorder) -> None:
    """Poll until the training has finished or is gone, then finish the rank; stop at once if the run was removed."""
    recorder.flush()
    training = ProcessWatch(recorder.notes.pid, is_running(recorder.notes))
    while events_path(recorder.rank_folder).is_dir():
        gone = not is_running(recorder.notes)
        recorder.read_notes()
        if gone:
            training.join(END_S)
        if recorder.is_finished or gone:
            recorder.process_end = training.describe()
            recorder.finish("complete" if recorder.is_finished else "crashed")
            return
        recorder.poll()
        training.wait(POLL_S)
    logging.error("%s was removed: nothing more is recorded", recorder.rank_folder)


def finish_rank(rank_folder: Path, timeout_s: float = TAKEOVER_S, log: Path | None = None) -> bool:
    """Finish what a sidecar left; False if another process holds the rank or the training runs. OSError of the disk."""
    if has_ended(rank_folder):
        return True  # there is nothing to lock any more
    with hold_lock(rank_folder, timeout_s) as mine:
        if has_ended(rank_folder):
            return True
        if not mine:
            return False
        recorder = Recorder(rank_folder, log)
        if not recorder.is_finished and is_running(recorder.notes):
            return False
        recorder.finish("complete" if recorder.is_finished else "crashed")
        if recorder.problem is not None:
            raise recorder.problem
    return True


def has_ended(rank_folder: Path) -> bool:
    with contextlib.suppress(StepscopeError):
        manifest = read_manifest(rank_folder)
        return manifest is not None and manifest.ended_unix_ns is not None
    return False


def read_manifest(rank_folder: Path) -> RankManifest | None:
    """Read rank.json; return None if the file is damaged or gone. Raise NewerSchemaError for a file of a newer version."""
    path = rank_folder / RANK_FILE
    try:
        return decode_manifest(RankManifest, read_small_text(path), str(path))
    except (OSError, UnicodeDecodeError, TableBrokenError):
        return None


def recover_run(run_path: Path) -> dict[int, str]:
    """Make tables from the files of a killed run. Return a word for each rank: recovered (made now), complete (finished
    earlier), recording (not over yet) or lost (no usable logs).

    A rank that a live process still records is left alone. Raise OSError if the run cannot be listed.
    """
    return {rank: recover_rank(rank_path(run_path, rank)) for rank in find_ranks(run_path)}


def recover_rank(rank_folder: Path) -> str:
    """Make tables from the files of one rank of a killed run; return a word as `recover_run` does."""
    if has_ended(rank_folder):
        return "complete"
    if not events_path(rank_folder).is_dir():
        return "lost"
    try:
        return "recovered" if finish_rank(rank_folder, timeout_s=1.0) else "recording"
    except (OSError, ValueError) as error:
        logging.getLogger("stepscope").warning("stepscope: %s cannot be recovered: %s", rank_folder, error)
        return "lost"


def is_running(notes: Notes) -> bool:
    """Return whether the training process is alive. A later process with the same id is not the training process."""
    return is_alive(notes.pid, notes.pid_started)
