"""One recorder at a time: a lock on `rank_<r>/events/recorder.lock` that the kernel frees when its holder dies."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collector.format.schema.inside import open_inside
from collector.format.schema.layout import events_path

LOCK_FILE = "recorder.lock"


@contextmanager
def hold_lock(rank_folder: Path, timeout_s: float = 0.0) -> Iterator[bool]:
    """Hold the lock of a rank; gives False if another process still holds it after the time-out."""
    descriptor = open_inside(events_path(rank_folder) / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield _wait_for(descriptor, timeout_s)
    finally:
        os.close(descriptor)


def is_locked(rank_folder: Path) -> bool:
    """Say whether somebody records this rank now."""
    if not (events_path(rank_folder) / LOCK_FILE).exists():
        return False
    with hold_lock(rank_folder) as mine:
        return not mine


def _wait_for(descriptor: int, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not _try(descriptor):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


def _try(descriptor: int) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
