"""The word log: one int64 per event of the training thread, in memory shared with the recorder process.

A word is `code << 56 | payload`. The payload of a timed word is a perf_counter_ns reading (56 bits last 2.2 years of
uptime). The writer stores words and never waits. The reader may be another process, or run much later. It reads up to
the first zero, and clears the words that it has saved elsewhere; a cleared slot is free. If the reader falls a whole
lap behind, the newest words are kept, and the overwritten words are counted as lost.
"""

from __future__ import annotations

import itertools
import logging
import mmap
import os
import struct
import threading
import time
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt

from collector.format.schema.inside import open_inside
from collector.format.schema.removal import remove_file
from collector.ring.memory import Mapping, can_share, close_ours, create_file, create_shared, is_ours, keep

CODE_SHIFT = 56
PAYLOAD_MASK = (1 << CODE_SHIFT) - 1
HEADER_BYTES = 4096
DEFAULT_CAPACITY = 1 << 20
NOTHING = 127
"""Code of a word that only fills its slot."""
FIRST_PIECE = 1 << 12
_MAGIC = 0x53535752
_HEAD_SLOT = 4
ORDER_SLOT = 5
"""Header slot with the order for a window, the only word for the training process: see `collector.ring.windows`."""
_FINISHED_SLOT = 6
_STEPS_SLOT = 7
WINDOW_SLOT = 8
"""Header slot with the state of the detailed window: see `collector.ring.windows`. The copy in a file lacks it."""
_HEADER_USED = 64
_log = logging.getLogger("stepscope")
_live: weakref.WeakSet[WordLog] = weakref.WeakSet()


class WordLog:
    """The writer of a word log, for one training thread at a time.

    Hot code writes words itself, because a method call would double the cost: `words[following() & mask] = now() +
    CODE`, only while `thread[0] == get_ident()`. Positions count from 1, so the first word is in slot 1.
    """

    def __init__(self, path: Path, capacity: int = DEFAULT_CAPACITY, *, shared: bool = False) -> None:
        """Create the log in the file. With `shared`, create it in memory; `WordReader` then keeps a copy in the file.

        Raise OSError without room.
        """
        if capacity & (capacity - 1):
            raise ValueError(f"the capacity {capacity} is no power of two")
        self.path = path
        self.capacity = capacity
        self.mask = capacity - 1
        self.following = itertools.count(1).__next__
        self.thread: list[int] = [threading.get_ident()]
        size = HEADER_BYTES + capacity * 8
        remove_file(path)  # a new file: what is there may have another name, too
        self._descriptor = create_file(path, size)
        try:
            self.is_shared = shared and can_share()
            if self.is_shared:
                memory = create_shared(size)
                os.close(self._descriptor)
                self._descriptor = memory
            self._descriptor = keep(self._descriptor)
            self._mapping = Mapping(self._descriptor, size)
            header = struct.pack("<4q", _MAGIC, capacity, os.getpid(), time.perf_counter_ns())
            self._mapping.view[: len(header)] = header
            if self.is_shared:
                with open(path, "r+b", opener=open_inside) as file:
                    file.write(header + bytes(size - len(header)))
        except OSError:
            os.close(self._descriptor)
            raise
        self.header = self._mapping.view[:HEADER_BYTES].cast("q")
        self.words = self._mapping.view[HEADER_BYTES:].cast("q")
        self._close = self._plan_close()
        _live.add(self)

    def _plan_close(self) -> weakref.finalize[[int], WordLog]:
        close = weakref.finalize(self, close_ours, self._descriptor)
        close.atexit = False
        return close

    def share(self) -> int | None:
        """Return the descriptor of the words' memory, to be passed to a process; None if the words are in the file.

        If the script has closed the descriptor, the words move to new memory. A process with the old memory then sees
        no new words, so call this only if there is no such process. Raise OSError without memory.
        """
        if not self.is_shared or not self._close.alive:
            return None
        if not is_ours(self._descriptor):
            memory = create_shared(len(self._mapping.view))
            try:
                memory = keep(memory)
                self._mapping.move(memory)
            except OSError:
                os.close(memory)
                raise
            self._close.detach()
            self._descriptor = memory
            self._close = self._plan_close()
        return self._descriptor

    def save(self) -> None:
        """Write the whole log to its file, for a reader that has no access to the memory. OSError passes through."""
        with open(self.path, "r+b", buffering=0, opener=open_inside) as file:
            written = 0
            while written < len(self._mapping.view):
                written += file.write(self._mapping.view[written:])

    def finish(self) -> None:
        """Mark the log as complete, even on a full disk."""
        self.header[_FINISHED_SLOT] = 1

    def close(self) -> None:
        """Release the descriptor and the memory. Words that hooks still write are dropped."""
        if self._close.alive:
            self._mapping.detach()
            self._close()

    def write(self, event: int, payload: int) -> None:
        """Write one word, in code that is not hot; `event` is one of `codes`."""
        self.words[self.following() & self.mask] = (payload & PAYLOAD_MASK) | event

    def mark_head(self, steps: int) -> None:
        """Write the position and the number of ended steps into the header, so that the reader notices losses."""
        position = self.following()
        self.words[position & self.mask] = NOTHING << CODE_SHIFT
        self.header[_HEAD_SLOT] = position
        self.header[_STEPS_SLOT] = steps

    def is_mine(self) -> bool:
        return self.thread[0] == threading.get_ident()

    def disown(self) -> None:
        """Stop writing, in a forked child: it has its parent's thread ids and log."""
        self.thread[0] = -1


def _disown_all() -> None:
    for log in list(_live):
        log.disown()


os.register_at_fork(after_in_child=_disown_all)


class WordReader:
    """The reader of a word log, only one at a time: `read()` returns new words, `release()` frees saved words.

    `lost` counts words that were overwritten or cleared before they were read. If the words are in memory, `copy` is
    the log's file. It keeps each read word until the word is released.
    """

    def __init__(self, path: Path, position: int = 1, copy: Path | None = None) -> None:
        descriptor = open_inside(path, os.O_RDWR)
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
        self._copy = _Copy(copy, self._memory, self.capacity) if copy is not None else None

    @property
    def steps(self) -> int:
        return int(struct.unpack_from("<q", self._memory, _STEPS_SLOT * 8)[0])

    def read(self) -> npt.NDArray[np.int64]:
        """Return the words since the last call, in order. `position` is then the position of the next word.

        Missing words lie before the returned words, never among them. The next call may return more words immediately.
        """
        words = self._read_new()
        if self._copy is not None and len(words):
            self._copy.add(self.position - len(words), words)
        return words

    def _read_new(self) -> npt.NDArray[np.int64]:
        head = self._read_head()
        if head - self._released >= self.capacity - self._margin:
            return self._keep_newest(head)
        self._skip_hole(head)
        pieces = [self._words[:0]]
        # Most of the log is usually empty, so it is read in small pieces.
        size = FIRST_PIECE
        while len(piece := self._read_piece(size)):
            pieces.append(piece)
            size *= 2
        return np.concatenate(pieces)

    def release(self, position: int) -> None:
        """Free every slot before a position, because the words there are saved or not needed."""
        first, last = self._released, min(position, self.position)
        if last <= first:
            return
        start, count = first % self.capacity, last - first
        self._words[start : start + count] = 0
        if start + count > self.capacity:
            self._words[: start + count - self.capacity] = 0
        self._released = last
        if self._copy is not None:
            self._copy.add(first, np.zeros(count, np.int64))

    def _read_head(self) -> int:
        return int(struct.unpack_from("<q", self._memory, _HEAD_SLOT * 8)[0])

    def _read_piece(self, size: int) -> npt.NDArray[np.int64]:
        start = self.position % self.capacity
        room = self._released + self.capacity - self.position
        piece = self._words[start : start + min(room, size)].copy()
        zeros = np.flatnonzero(piece == 0)
        if len(zeros):
            piece = piece[: zeros[0]]
        self.position += len(piece)
        return piece

    def _keep_newest(self, head: int) -> npt.NDArray[np.int64]:
        """Return the newest words that are certainly not overwritten, and clear all slots.

        After a lap, the slots after the head hold words of the previous lap, which look like new words. So all slots
        are cleared. Words that the writer adds during the clearing are cleared too, which leaves a hole.
        """
        copy = self._words.copy()
        head = self._read_head()
        self._words[:] = 0
        if self._copy is not None:
            self._copy.add(0, np.zeros(self.capacity, np.int64))
        first = max(head - self.capacity + self._margin + 1, self.position)
        words: npt.NDArray[np.int64] = copy[np.arange(first, head + 1) % self.capacity]
        cleared = np.flatnonzero(words == 0)
        if len(cleared):
            first, words = first + int(cleared[-1]) + 1, words[cleared[-1] + 1 :]
        self.lost += first - self.position
        self.position = self._released = head + 1
        return words

    def _skip_hole(self, head: int) -> None:
        """Skip slots before the head that were cleared before they were read, and count their words as lost."""
        if self.position > head or self._words[self.position % self.capacity]:
            return
        ahead = self._words[np.arange(self.position, head + 1) % self.capacity]
        written = np.flatnonzero(ahead)
        hole = int(written[0]) if len(written) else len(ahead)
        self.lost += hole
        self.position += hole


class _Copy:
    """The file behind a log in shared memory. Recovery reads it when the process that owned the memory is gone."""

    def __init__(self, path: Path, memory: mmap.mmap, capacity: int) -> None:
        self._path = path
        self._memory = memory
        self._capacity = capacity
        self._has_failed = False

    def add(self, position: int, words: npt.NDArray[np.int64]) -> None:
        """Write words to their slots, then the header. If writing fails, the words are only in memory."""
        start = position % self._capacity
        room = self._capacity - start
        try:
            # Opened each time: another file may have this path now.
            with open(self._path, "r+b", buffering=0, opener=open_inside) as file:
                _write_at(file.fileno(), words[:room], HEADER_BYTES + start * 8)
                _write_at(file.fileno(), words[room:], HEADER_BYTES)
                os.pwrite(file.fileno(), self._memory[:_HEADER_USED], 0)
            self._has_failed = False
        except OSError as error:
            if not self._has_failed:
                _log.warning("stepscope: the copy of the event log is not written: %s", error)
            self._has_failed = True


def _write_at(descriptor: int, words: npt.NDArray[np.int64], offset: int) -> None:
    view = memoryview(words.tobytes())
    while len(view):
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def is_finished(path: Path) -> bool:
    """Return whether the training thread has marked the log as complete. Raise OSError if there is no log."""
    descriptor = open_inside(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return any(os.pread(descriptor, 8, _FINISHED_SLOT * 8))
    finally:
        os.close(descriptor)
