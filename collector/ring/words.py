"""The word log: one int64 per event of the training thread, in a file that outlives the process.

A word is `code << 56 | payload`. The payload of a timed word is a perf_counter_ns reading (56 bits last 2.2 years of
uptime). The writer stores and forgets; the reader, in another process or another year, finds the end at the first
zero and clears what it has saved elsewhere, so a cleared slot is free. The writer never waits: if the reader falls a
whole lap behind, what was overwritten is counted as lost.
"""

from __future__ import annotations

import itertools
import mmap
import os
import struct
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt

CODE_SHIFT = 56
PAYLOAD_MASK = (1 << CODE_SHIFT) - 1
HEADER_BYTES = 4096
DEFAULT_CAPACITY = 1 << 20
NOTHING = 127
"""The code of a word that only fills its slot."""
FIRST_PIECE = 1 << 12
_MAGIC = 0x53535752
_HEAD_SLOT = 4
ORDER_SLOT = 5
"""The one word of the header that flows towards the training process: see `collector.ring.orders`."""
_live: weakref.WeakSet[WordLog] = weakref.WeakSet()


class WordLog:
    """The writing side, one training thread at a time.

    The hot path is open on purpose, a method call would double its cost:
    `words[following() & mask] = now() + CODE`, only while `thread[0] == get_ident()`.
    Slot 0 is never the first to be used: positions count from 1.
    """

    def __init__(self, path: Path, capacity: int = DEFAULT_CAPACITY) -> None:
        if capacity & (capacity - 1):
            raise ValueError(f"the capacity {capacity} is no power of two")
        self.path = path
        self.capacity = capacity
        self.mask = capacity - 1
        self.following = itertools.count(1).__next__
        self.thread: list[int] = [threading.get_ident()]
        size = HEADER_BYTES + capacity * 8
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            # A hole in a mapped file on a full disk is SIGBUS at the store; reserving it is ENOSPC here.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, size)
            else:  # pragma: no cover  macOS
                os.ftruncate(descriptor, size)
            self._memory = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        struct.pack_into("<5q", self._memory, 0, _MAGIC, capacity, os.getpid(), time.perf_counter_ns(), 0)
        self.header = memoryview(self._memory)[:HEADER_BYTES].cast("q")
        self.words = memoryview(self._memory)[HEADER_BYTES:].cast("q")
        _live.add(self)

    def write(self, code: int, payload: int) -> None:
        """Store one word; for places that are not hot."""
        self.words[self.following() & self.mask] = (payload & PAYLOAD_MASK) | code << CODE_SHIFT

    def mark_head(self) -> None:
        """Tell the reader how far the writer is, so that it notices when it was lapped."""
        position = self.following()
        self.words[position & self.mask] = NOTHING << CODE_SHIFT
        self.header[_HEAD_SLOT] = position

    def is_mine(self) -> bool:
        """Say whether the calling thread is the one that may write."""
        return self.thread[0] == threading.get_ident()

    def disown(self) -> None:
        """Let no thread of this process write again: a forked child has its parent's thread ids, and this file."""
        self.thread[0] = -1


def _disown_all() -> None:
    for log in list(_live):
        log.disown()


os.register_at_fork(after_in_child=_disown_all)


class WordReader:
    """The reading side: `read()` what is new, `release()` what is safe. Several readers would steal from each other."""

    def __init__(self, path: Path, position: int = 1) -> None:
        descriptor = os.open(path, os.O_RDWR)
        try:
            self._memory = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
        magic, self.capacity = struct.unpack_from("<2q", self._memory, 0)
        if magic != _MAGIC or len(self._memory) < HEADER_BYTES + self.capacity * 8:
            raise ValueError(f"{path} is no word log")
        self._words = np.frombuffer(self._memory, np.int64, self.capacity, HEADER_BYTES)
        self.position = position
        self.lost = 0
        self._released = position
        self._lapped_at: int | None = None

    def read(self) -> npt.NDArray[np.int64]:
        """Return the words since the last call, in order. `position` is then that of the next word."""
        if not self._skip_overwritten():
            return self._words[:0]
        pieces = [self._words[:0]]
        # Most of the log is free most of the time, so it is looked at a little at a time.
        size = FIRST_PIECE
        while len(piece := self._read_piece(size)):
            pieces.append(piece)
            size *= 2
        return np.concatenate(pieces)

    def release(self, position: int) -> None:
        """Free every slot before that position: its words are saved, or will never be needed."""
        first, last = self._released, min(position, self.position)
        if last <= first:
            return
        start, count = first % self.capacity, last - first
        self._words[start : start + count] = 0
        if start + count > self.capacity:
            self._words[: start + count - self.capacity] = 0
        self._released = last

    def _read_piece(self, size: int) -> npt.NDArray[np.int64]:
        """Return at most so many words, up to the first zero or the end of the file."""
        start = self.position % self.capacity
        room = self._released + self.capacity - self.position
        piece = self._words[start : start + min(room, size)].copy()
        zeros = np.flatnonzero(piece == 0)
        if len(zeros):
            piece = piece[: zeros[0]]
        self.position += len(piece)
        return piece

    def _skip_overwritten(self) -> bool:
        """Give up what the writer overwrote; return whether there is something to read.

        After a lap the slots hold a mixture of two laps and nothing tells them apart. So all of them are cleared, and
        reading goes on after the next mark of the head, before which nothing can be trusted.
        """
        head = struct.unpack_from("<q", self._memory, _HEAD_SLOT * 8)[0]
        lapped_at = self._lapped_at
        if lapped_at is None and head - self._released < self.capacity:
            return True
        if lapped_at is None or head - lapped_at >= self.capacity:
            self._lapped_at = head
            self._words[:] = 0
            return False
        if head == lapped_at:
            return False
        self._lapped_at = None
        self._words[np.arange(lapped_at, head + 1) % self.capacity] = 0
        self.lost += head + 1 - self.position
        self.position = self._released = head + 1
        return True
