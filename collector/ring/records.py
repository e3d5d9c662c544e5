"""A ring of fixed-size int64 records in a file: one process writes while another reads.

Records written before a SIGKILL can be read after it. Both sides read and write the file instead of mapping it: a
mapped file that another process truncates or removes would end this process with SIGBUS. A record has its number in its
first and last word. So a record that is being overwritten is recognized, counted as lost, and never returned.

    header   magic, words per record, capacity, pid, start (perf_counter_ns), unused, closed
             then META_WORDS words that belong to the user of the ring
    records  number + 1, the fields, number + 1
"""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from collector.format.schema.inside import open_inside
from collector.ring.memory import close_ours, create_file, is_ours, keep

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


META_WORDS = 16
_MAGIC = 0x5354_5245_4331
_HEADER_BYTES = 4096
_HEADER = struct.Struct("<7q")
_META_OFFSET = 64
_CLOSED_OFFSET = 48
_FIRST_LOOK = 64
"""Number of records that a reader reads first; the number doubles while there are more."""
_WORD = struct.Struct("<q")


def encode_text(text: str, words: int) -> tuple[int, ...]:
    """Return a text as `words` words. A long text is cut between characters."""
    data = text.encode("utf-8", "replace")[: words * 8].decode("utf-8", "ignore").encode()
    return struct.unpack(f"<{words}q", data.ljust(words * 8, b"\0"))


def decode_text(words: Sequence[int]) -> str:
    return struct.pack(f"<{len(words)}q", *words).rstrip(b"\0").decode("utf-8", "replace")


class RecordWriter:
    """The writer of a ring. One process may write, on any of its threads."""

    __slots__ = ("_capacity", "_descriptor", "_lock", "_pack", "_padding", "_path", "_record_bytes", "_written")

    def __init__(self, path: Path, fields: int, capacity: int, meta: Sequence[int] = ()) -> None:
        """Create the file, for `capacity` records of `fields` words. Raise OSError without room, or if it exists."""
        words = fields + 2
        self._record_bytes = words * 8
        self._capacity = capacity
        self._pack = struct.Struct(f"<{words}q").pack
        self._padding = tuple((0,) * (fields - used) for used in range(fields + 1))
        self._written = 0
        # What a closed descriptor was called may be a file of the user's now: nothing is written after close().
        self._lock = threading.RLock()
        self._path = path
        self._descriptor = create_file(path, _HEADER_BYTES + capacity * self._record_bytes)
        kept = meta[:META_WORDS]
        os.pwrite(self._descriptor, struct.pack(f"<{len(kept)}q", *kept), _META_OFFSET)
        header = (words, capacity, os.getpid(), time.perf_counter_ns(), 0, 0)
        # The magic word is written last: a reader that finds it also finds the rest of the header.
        os.pwrite(self._descriptor, struct.pack("<6q", *header), 8)
        os.pwrite(self._descriptor, _WORD.pack(_MAGIC), 0)

    def append(self, *fields: int) -> None:
        """Write a record, once full over the oldest; missing fields are 0. Some 1 µs; it never raises."""
        with self._lock:
            number = self._written
            self._written = written = number + 1
            record = self._pack(written, *fields, *self._padding[len(fields)], written)
            self._write(record, _HEADER_BYTES + number % self._capacity * self._record_bytes)

    def close(self) -> None:
        """Mark the ring as complete. The file stays until the reader removes it."""
        with self._lock:
            self._write(_WORD.pack(1), _CLOSED_OFFSET)
            descriptor, self._descriptor = self._descriptor, -1
            close_ours(descriptor)

    def _write(self, data: bytes, offset: int) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):  # the file was truncated and the disk is full: the record is lost
                if not is_ours(self._descriptor):
                    self._open_again()
                os.pwrite(self._descriptor, data, offset)

    def _open_again(self) -> None:
        """Open the file again after the script closed its descriptor. Raise OSError if the file is gone."""
        self._descriptor = -1
        descriptor = open_inside(self._path, os.O_RDWR)
        try:
            self._descriptor = keep(descriptor)
        except OSError:
            os.close(descriptor)
            raise

    def __del__(self, close: Callable[[int], None] = close_ours) -> None:
        # `close` was bound above: when the interpreter ends, the names of this module no longer exist.
        close(getattr(self, "_descriptor", -1))


class RecordReader:
    """A reader of a ring, which returns each record at most once. It takes over the given descriptor, and closes it.

    `position` is the number of the next record. `lost` counts records that were overwritten before they were read.
    """

    def __init__(self, path: Path, descriptor: int, position: int) -> None:
        self.path = path
        self._descriptor = descriptor
        header = os.pread(descriptor, _HEADER_BYTES, 0)
        _, self._words, self._capacity, self.pid, self.started_ns, _, _ = _HEADER.unpack_from(header, 0)
        self.meta: tuple[int, ...] = struct.unpack_from(f"<{META_WORDS}q", header, _META_OFFSET)
        self.position = position
        self.lost = 0

    @property
    def fields(self) -> int:
        return int(self._words) - 2

    @property
    def closed(self) -> bool:
        """Whether the writer has marked the ring as complete. Check this before the last `read`, not after it."""
        return any(os.pread(self._descriptor, 8, _CLOSED_OFFSET))

    def read(self) -> npt.NDArray[np.int64]:
        """Return the records since the last call, oldest first: an array of shape (records, fields)."""
        import numpy as np  # the writing side works without numpy

        pieces = [np.empty((0, self._words), np.int64)]
        size = _FIRST_LOOK
        while True:
            records = self._read_slots(self.position % self._capacity, size)
            expected = np.arange(self.position + 1, self.position + 1 + len(records))
            fresh = (records[:, 0] == expected) & (records[:, -1] == expected)
            count = len(records) if fresh.all() else int(fresh.argmin())
            pieces.append(records[:count])
            self.position += count
            if (records[count:, 0] > self.position + 1).any():
                pieces.append(self._read_scattered())
                break
            if count < len(records) or not count:
                break
            size *= 2
        fields: npt.NDArray[np.int64] = np.concatenate(pieces)[:, 1:-1]
        return fields

    def _read_scattered(self) -> npt.NDArray[np.int64]:
        """Return every complete record after the position. Overwritten and torn records among them are counted as lost."""
        import numpy as np

        # What was written while the slots are read is left for the next time: one of those may be missing among them.
        newest = self._read_slots(0, self._capacity)[:, 0].max(initial=0)
        records = self._read_slots(0, self._capacity)
        numbers = records[:, 0]
        kept: npt.NDArray[np.int64] = records[
            (numbers == records[:, -1]) & (numbers > self.position) & (numbers <= newest)
        ]
        kept = kept[np.argsort(kept[:, 0])]
        last = int(kept[-1, 0]) if len(kept) else self.position
        self.lost += last - self.position - len(kept)
        self.position = last
        return kept

    def _read_slots(self, first: int, count: int) -> npt.NDArray[np.int64]:
        import numpy as np

        size = min(count, self._capacity - first) * self._words * 8
        data = os.pread(self._descriptor, size, _HEADER_BYTES + first * self._words * 8)
        whole = len(data) // (self._words * 8)
        slots: npt.NDArray[np.int64] = np.frombuffer(data, np.int64, whole * self._words).reshape(whole, self._words)
        return slots

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if getattr(self, "_descriptor", -1) >= 0:
            close(self._descriptor)


def open_reader(path: Path, position: int = 0) -> RecordReader | None:
    """Open a ring to read from a position; return None if the file is gone, incomplete, or no ring."""
    try:
        descriptor = open_inside(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        header = os.pread(descriptor, _HEADER_BYTES, 0)
        size = os.fstat(descriptor).st_size
    except OSError:
        header, size = b"", 0
    if len(header) == _HEADER_BYTES:
        magic, words, capacity, *_ = _HEADER.unpack_from(header, 0)
        if magic == _MAGIC and words > 2 and capacity > 0 and size >= _HEADER_BYTES + words * capacity * 8:
            return RecordReader(path, descriptor, position)
    os.close(descriptor)
    return None
