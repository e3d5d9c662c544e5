"""Count what a thread reads from files and opens: bytes by the kernel's count, and calls of Python's `open`.

`open` is replaced only while a batch is timed. The replacement is no function, so that a class that holds it as an
attribute gets the same call as before. Files opened by C code are not seen.
"""

from __future__ import annotations

import builtins
import io
import os
from threading import get_ident
from time import perf_counter_ns
from typing import Any

from collector.edge import hide_frame, uncounted
from collector.ring.stage_log import UNKNOWN, pack_opened

_OWNERS = (builtins, io)


class ReadCounter:
    """A counter of the bytes that the calling thread reads between `start` and `stop`, from files and pipes, from disk
    or page cache.

    `stop` returns the count, UNKNOWN if the kernel gives none. Memory maps are not seen.
    """

    def __init__(self) -> None:
        self._descriptor = UNKNOWN
        self._before = UNKNOWN
        self._look_bytes = 0

    def start(self) -> None:
        if self._descriptor == UNKNOWN and self._before == UNKNOWN:
            self._open()
        self._before = self._read()

    def stop(self) -> int:
        after = self._read()
        # The look at the count was itself read, after it was counted.
        return after - self._before - self._look_bytes if after >= self._before >= 0 else UNKNOWN

    def close(self) -> None:
        if self._descriptor >= 0 and self._is_ours():
            os.close(self._descriptor)
        self._descriptor = UNKNOWN

    def _is_ours(self) -> bool:
        """Return whether the descriptor is still ours: False if the script has closed it, also if another file has its
        number.
        """
        try:
            return os.readlink(f"/proc/self/fd/{self._descriptor}").endswith("/io")
        except OSError:
            return False

    def _open(self) -> None:
        # Each reading thread opens the file: the path names the thread that opens it.
        try:
            self._descriptor = os.open("/proc/thread-self/io", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = -2

    def _read(self) -> int:
        if self._descriptor < 0:
            return UNKNOWN
        try:
            text = os.pread(self._descriptor, 32, 0)  # the first line is `rchar: <bytes>`
            self._look_bytes = len(text)
            return int(text.split(None, 2)[1])
        except (OSError, ValueError, IndexError):
            return UNKNOWN


class OpenCounter:
    """A counter of the files that the starting thread opens between `start` and `stop`, and of the time to open them."""

    def __init__(self) -> None:
        self._stand_ins: list[tuple[Any, _CountedOpen]] = []
        self.count = self.duration_ns = 0

    @property
    def packed(self) -> int:
        return pack_opened(self.count, self.duration_ns)

    def start(self) -> None:
        self.count = self.duration_ns = 0
        self.thread = get_ident()
        if self._stand_ins:
            return
        for owner in _OWNERS:
            stand_in = _CountedOpen(owner.open, self)
            self._stand_ins.append((owner, stand_in))
            owner.open = stand_in  # type: ignore[attr-defined]

    def stop(self) -> None:
        """Restore `open`, unless other code has replaced it since."""
        for owner, stand_in in self._stand_ins:
            if owner.open is stand_in:
                owner.open = stand_in.raw
        self._stand_ins.clear()


class _CountedOpen:
    __slots__ = ("_counter", "raw")

    def __init__(self, raw: Any, counter: OpenCounter) -> None:
        self.raw = raw
        self._counter = counter

    @uncounted
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        counter = self._counter
        try:
            if get_ident() != counter.thread:
                return self.raw(*args, **kwargs)
            before = perf_counter_ns()
            try:
                return self.raw(*args, **kwargs)
            finally:
                counter.duration_ns += perf_counter_ns() - before
                counter.count += 1
        except BaseException as error:
            hide_frame(error)
            raise

    def __reduce__(self) -> tuple[Any, ...]:
        return _find_open, ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.raw, name)


def _find_open() -> Any:
    return builtins.open
