"""Tell the recorder process which thread to read the stacks of: a small file per process in `events/`."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collector.format.schema.writing import replace_text
from collector.frames.discovery import find_layout, find_thread
from collector.frames.layout import Layout
from collector.frames.reading import StackReader

_PREFIX, _SUFFIX = "frames-", ".json"
TRAINER = -1
_SET_PTRACER = 0x59616D61
_YAMA = "/proc/sys/kernel/yama/ptrace_scope"
_MOST_BYTES = 4096


@dataclass(frozen=True)
class Post:
    """A thread whose stacks can be read. `replica` is a worker number, TRAINER for the process that trains."""

    pid: int
    thread: int
    replica: int
    loader: int
    layout: Layout


def post_thread(events: Path, replica: int, loader: int, reader_pid: int) -> None:
    """Offer the stacks of the calling thread to a process. LayoutError or OSError if they cannot be read."""
    post = Post(os.getpid(), find_thread(), replica, loader, find_layout())
    _allow(reader_pid)
    path = events / f"{_PREFIX}{post.pid}-{time.perf_counter_ns()}{_SUFFIX}"
    replace_text(path, json.dumps(dataclasses.asdict(post)))


def take_posts(events: Path) -> Iterator[tuple[Post, StackReader | None]]:
    """Open what was offered since the last call, and remove the offers; None where the system forbids it.

    A process that is gone is left out.
    """
    for name in sorted(os.listdir(events)):
        if not (name.startswith(_PREFIX) and name.endswith(_SUFFIX)):
            continue
        path = events / name
        try:
            with open(path, encoding="utf-8") as file:
                raw = json.loads(file.read(_MOST_BYTES))
            path.unlink()
            post = Post(**{**raw, "layout": Layout(**raw["layout"])})
            reader = _open_reader(post)
        except (OSError, ValueError, TypeError, KeyError):
            continue
        yield post, reader


def _open_reader(post: Post) -> StackReader | None:
    try:
        memory = os.open(f"/proc/{post.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except PermissionError:
        return None
    return StackReader(memory, post.layout, post.thread)


def _allow(reader_pid: int) -> None:
    """Let that process read this one's memory where only its ancestors may, as on Ubuntu."""
    try:
        with open(_YAMA, encoding="ascii") as file:
            is_needed = file.read().strip() == "1"
    except OSError:
        return
    if is_needed and reader_pid > 0:
        ctypes.CDLL(None).prctl(_SET_PTRACER, ctypes.c_ulong(reader_pid), 0, 0, 0)
