"""Offer threads whose stacks the recorder process may then read: by a small file per thread in `events/`."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from collector.format.schema.writing import replace_text

PREFIX, SUFFIX = "frames-", ".json"
TRAINER = -1
BESIDE, AGAINST = -2, -3
"""The numbers, in place of a worker's, of another thread of the training process: while the training thread waits for a
thread, and while it stands still elsewhere, maybe for the interpreter."""
_SET_PTRACER = 0x59616D61
_YAMA = "/proc/sys/kernel/yama/ptrace_scope"


@dataclass(frozen=True)
class Post:
    """An offered thread. `thread` is the address of its state. `replica` is the number of a worker and `loader` that of
    its loader; they are TRAINER and -1 for the training thread. `native` is the system's number of the thread, 0 if
    unknown."""

    pid: int
    thread: int
    replica: int
    loader: int
    native: int = 0


def post_thread(events: Path, replica: int, loader: int, reader_pid: int) -> None:
    """Offer the stacks of the calling thread to the process `reader_pid`. Raise OSError if the offer is not written."""
    post = Post(os.getpid(), find_thread(), replica, loader, threading.get_native_id())
    _allow(reader_pid)
    path = events / f"{PREFIX}{post.pid}-{time.perf_counter_ns()}{SUFFIX}"
    replace_text(path, json.dumps(dataclasses.asdict(post)))


def _allow(reader_pid: int) -> None:
    """Let the reading process read this process's memory. Without this, Ubuntu, for example, allows it to ancestors."""
    try:
        with open(_YAMA, encoding="ascii") as file:
            is_needed = file.read().strip() == "1"
    except OSError:
        return
    if is_needed and reader_pid > 0:
        ctypes.CDLL(None).prctl(_SET_PTRACER, ctypes.c_ulong(reader_pid), 0, 0, 0)


def find_thread() -> int:
    """Return the memory address of the interpreter's state of the calling thread."""
    ask = ctypes.pythonapi.PyThreadState_Get
    ask.restype = ctypes.c_void_p
    return int(ask() or 0)
