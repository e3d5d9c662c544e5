"""Read the offers of training processes. An offer names a thread whose stacks may be read; its address is always
checked.

The system, not a file, decides which processes may be read: the training process and its descendants.
"""

from __future__ import annotations

import json
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from collector.format.schema.removal import remove_file
from collector.frames.discovery import find_layout, find_shift, has_thread
from collector.frames.posting import PREFIX, SUFFIX, TRAINER, Post
from collector.frames.reading import LayoutError, StackReader

_MOST_BYTES = 4096
_MOST_WORKERS = 1 << 31
_REFUSED = (
    "The system does not let a process read the memory of another one, not even of the same user: in a container that "
    "takes the capability SYS_PTRACE, elsewhere sysctl kernel.yama.ptrace_scope=1."
)
_log = logging.getLogger("stepscope")
_MOST_GENERATIONS = 64
_PARENT, _STARTED = 1, 19
"""Fields of /proc/<pid>/stat, counted after the name, since the name may contain any character."""


class Offers:
    """The offers in `events` of a family of processes. `refusal` is why the training thread is unreadable, if known."""

    def __init__(self, events: Path, family: Family) -> None:
        self._events = events
        self._family = family
        self._has_trainer = False
        self.refusal = ""

    def take(self) -> Iterator[tuple[Post, StackReader]]:
        """Yield each new offer with a reader of the offered thread.

        The files of all offers are removed. An offer is ignored if it cannot be opened, or if its process is neither
        the training process nor a descendant of it.
        """
        for name in sorted(os.listdir(self._events)):
            if not (name.startswith(PREFIX) and name.endswith(SUFFIX)):
                continue
            try:
                post = self._take_post(self._events / name)
                reader = self._open_reader(post)
            except (OSError, ValueError, TypeError, RecursionError, ForeignError) as error:
                _log.debug("stepscope: the offer %r is not taken: %s", name, error)
            else:
                if reader is not None:
                    yield post, reader

    def _open_reader(self, post: Post) -> StackReader | None:
        try:
            reader = self._find_reader(post)
        except PermissionError:
            self._refuse(post, _REFUSED)
        except LayoutError as error:
            self._refuse(post, f"Stacks cannot be read here: {error}.")
        else:
            self._has_trainer = self._has_trainer or post.replica == TRAINER
            return reader
        return None

    def _refuse(self, post: Post, why: str) -> None:
        if post.replica == TRAINER and not self._has_trainer:
            self.refusal = why

    def _take_post(self, path: Path) -> Post:
        """Return an offer and remove its file, even if the offer is invalid: another attempt would fail as well."""
        try:
            return self._read_post(path)
        finally:
            remove_file(path)

    def _read_post(self, path: Path) -> Post:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(number, "rb") as file:
            found = os.fstat(number)
            owner = os.stat(self._events).st_uid
            if not stat.S_ISREG(found.st_mode) or found.st_uid != owner or found.st_size > _MOST_BYTES:
                raise OSError("it is no plain file, not ours, or too large")
            raw = json.loads(file.read(_MOST_BYTES))
        post = Post(**raw)
        if not all(type(value) is int for value in raw.values()):
            raise TypeError("it holds other things than numbers")
        if not all(-1 <= number < _MOST_WORKERS for number in (post.replica, post.loader)):
            raise ValueError("there is no such worker")
        return post

    def _find_reader(self, post: Post) -> StackReader:
        if (post.replica == TRAINER) != (post.pid == self._family.pid):
            raise ForeignError("the training thread is another process's")
        process = self._family.open_process(post.pid)
        try:
            shift = find_shift(process)
            layout = find_layout()
            memory = os.open("mem", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
        finally:
            os.close(process)
        if not has_thread(memory, shift, post.thread):
            os.close(memory)
            raise ForeignError("it has no such thread")
        return StackReader(memory, layout, post.thread, shift)


class ForeignError(Exception):
    """An offer is not to be trusted: its process does not belong to the training, or has no such thread."""


class _Origin(NamedTuple):
    parent: int
    started: int


class Family:
    """A process and its descendants: those whose stacks may be read. `pid` is that process: this one or its parent."""

    def __init__(self, pid: int) -> None:
        """Raise ForeignError unless `pid` is this process or its parent: the system may have reused the number."""
        try:
            self._started = _read_origin(os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)).started
        except OSError as error:
            raise ForeignError(f"{pid} cannot be looked at: {error}") from None
        if pid not in (os.getpid(), os.getppid()):
            raise ForeignError(f"{pid} has not started this process")
        self.pid = pid

    def open_process(self, pid: int) -> int:
        """Return a descriptor of a process's folder in /proc. The descriptor never leads to a later process with the
        same number.

        Raise ForeignError for a process outside of the family, PermissionError for another user's process, OSError for
        a process that is gone.
        """
        process = os.open(f"/proc/{pid:d}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not self._holds(pid, _read_origin(os.dup(process))):
                raise ForeignError(f"{pid} does not descend from {self.pid}")
            if os.fstat(process).st_uid != os.geteuid():
                raise PermissionError(f"{pid} belongs to another user")
        except BaseException:
            os.close(process)
            raise
        return process

    def _holds(self, pid: int, origin: _Origin) -> bool:
        for _ in range(_MOST_GENERATIONS):
            if pid == self.pid:
                return origin.started == self._started
            pid, child = origin.parent, origin
            if not pid:
                return False
            origin = _read_origin(os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            if origin.started > child.started:
                return False  # the parent has ended, and another process has its number
        return False


def _read_origin(process: int) -> _Origin:
    """Return the parent of a process and its start time in ticks. The descriptor `process` is closed."""
    try:
        stat = os.open("stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
    finally:
        os.close(process)
    with os.fdopen(stat, "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return _Origin(int(fields[_PARENT]), int(fields[_STARTED]))
