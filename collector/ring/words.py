"""The word log: one int64 per event of the training thread, in a file that outlives the process.

A word is `code << 56 | payload`. The payload of a timed word is a perf_counter_ns reading (56 bits last 2.2 years of
uptime). The writer stores and forgets; the reader, in another process or another year, finds the end at the first
zero and clears what it has saved elsewhere, so a cleared slot is free. The writer never waits: if the reader falls a
whole lap behind, the newest words are kept and those that were overwritten are counted as lost.
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
_STEPS_SLOT = 7
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

    def mark_head(self, steps: int) -> None:
        """Tell the reader how far the writer is and how many steps have ended, so that it notices what it has missed."""
        position = self.following()
        self.words[position & self.mask] = NOTHING << CODE_SHIFT
        self.header[_HEAD_SLOT] = position
        self.header[_STEPS_SLOT] = steps

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
    """The reading side: `read()` what is new, `release()` what is safe. Several readers would steal from each other.

    `lost` counts the words that were overwritten or cleared before they were read.
    """

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
        # The writer is ahead of its last mark by what it writes between two marks.
        self._margin = self.capacity // 16

    @property
    def steps(self) -> int:
        """How many steps the training thread had ended when it last said so."""
        return int(struct.unpack_from("<q", self._memory, _STEPS_SLOT * 8)[0])

    def read(self) -> npt.NDArray[np.int64]:
        """Return the words since the last call, in order. `position` is then that of the next word.

        Words that are missing lie before those that are returned, never among them; more may be there at once.
        """
        head = self._read_head()
        if head - self._released >= self.capacity - self._margin:
            return self._keep_newest(head)
        self._skip_hole(head)
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

    def _read_head(self) -> int:
        return int(struct.unpack_from("<q", self._memory, _HEAD_SLOT * 8)[0])

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

    def _keep_newest(self, head: int) -> npt.NDArray[np.int64]:
        """Return the newest words, of which it is known that nothing has overwritten them, and clear all slots.

        After a lap the slots behind the head hold words of the lap before, and nothing tells them from those that the
        writer puts there now. So all are cleared, with the few words that were written since: a hole is left there.
        """
        copy = self._words.copy()
        head = self._read_head()
        self._words[:] = 0
        first = max(head - self.capacity + self._margin + 1, self.position)
        words: npt.NDArray[np.int64] = copy[np.arange(first, head + 1) % self.capacity]
        cleared = np.flatnonzero(words == 0)
        if len(cleared):
            first, words = first + int(cleared[-1]) + 1, words[cleared[-1] + 1 :]
        self.lost += first - self.position
        self.position = self._released = head + 1
        return words

    def _skip_hole(self, head: int) -> None:
        """Go on after words that were cleared before anybody read them: those before the head were all written."""
        if self.position > head or self._words[self.position % self.capacity]:
            return
        ahead = self._words[np.arange(self.position, head + 1) % self.capacity]
        written = np.flatnonzero(ahead)
        hole = int(written[0]) if len(written) else len(ahead)
        self.lost += hole
        self.position += hole
