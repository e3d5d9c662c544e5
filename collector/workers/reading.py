"""Bytes that this thread has read, as the kernel counts them: files and pipes, from disk or from the page cache."""

from __future__ import annotations

import os

UNKNOWN = -1


class ReadCounter:
    """Counts between `start` and `stop`. Where the kernel does not say, the answer is UNKNOWN. Memory maps are not seen."""

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
        """Say whether the script has not closed the descriptor and given its number to another file."""
        try:
            return os.readlink(f"/proc/self/fd/{self._descriptor}").endswith("/io")
        except OSError:
            return False

    def _open(self) -> None:
        # Opened by the thread that reads: the name stands for whoever opens it.
        try:
            self._descriptor = os.open("/proc/thread-self/io", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = -2

    def _read(self) -> int:
        if self._descriptor < 0:
            return UNKNOWN
        try:
            text = os.pread(self._descriptor, 32, 0)  # its first line is `rchar: <bytes>`
            self._look_bytes = len(text)
            return int(text.split(None, 2)[1])
        except (OSError, ValueError, IndexError):
            return UNKNOWN
