"""A ring of fixed-size int64 records in a file: one process writes, another reads while it does.

The file is shared memory that outlives its writer: what was appended before a SIGKILL can be read after it.
A record carries its number in its first and last word, so one that is being overwritten shows as torn and is counted
as lost, never returned.

    header   magic, words per record, capacity, pid, start (perf_counter_ns), records written, closed
             then META_WORDS words that belong to the user of the ring
    records  number + 1, the fields, number + 1
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

META_WORDS = 16
_MAGIC = 0x5354_5245_4331
_HEADER_BYTES = 4096
_HEADER = struct.Struct("<7q")
_META_OFFSET = 64
_WRITTEN_OFFSET = 40
_CLOSED_OFFSET = 48
_WORD = struct.Struct("<q")


class RecordWriter:
    """The one producer of a ring. Not safe for two threads at once: a second one needs a lock or a ring of its own."""

    __slots__ = ("_capacity", "_data", "_pack", "_record_bytes", "_written")

    def __init__(self, path: Path, fields: int, capacity: int, meta: Sequence[int] = ()) -> None:
        """Create the file whole. OSError when there is no room (better here than SIGBUS at a write), or one is there."""
        words = fields + 2
        self._record_bytes = words * 8
        self._capacity = capacity
        self._pack = struct.Struct(f"<{words}q").pack_into
        self._written = 0
        self._data = _map_new_file(path, _HEADER_BYTES + capacity * self._record_bytes)
        struct.pack_into(f"<{len(meta)}q", self._data, _META_OFFSET, *meta[:META_WORDS])
        header = (words, capacity, os.getpid(), time.perf_counter_ns(), 0, 0)
        # The magic word comes last: a reader that finds it finds the rest of the header.
        struct.pack_into("<6q", self._data, 8, *header)
        _WORD.pack_into(self._data, 0, _MAGIC)

    def append(self, *fields: int) -> None:
        """Write one record over the oldest. About 0.5 µs; never waits, never raises for lack of room."""
        number = self._written
        self._written = written = number + 1
        self._pack(
            self._data, _HEADER_BYTES + (number % self._capacity) * self._record_bytes, written, *fields, written
        )
        _WORD.pack_into(self._data, _WRITTEN_OFFSET, written)

    def close(self) -> None:
        """Say that nothing will follow. The file stays for the reader, who removes it."""
        _WORD.pack_into(self._data, _CLOSED_OFFSET, 1)


class RecordReader:
    """Reads a ring once through, each record at most once.

    `position` is the number of the next record, `lost` counts those that were overwritten before they were read.
    """

    def __init__(self, path: Path, data: mmap.mmap, position: int = 0) -> None:
        self.path = path
        self._data = data
        _, self._words, self._capacity, self.pid, self.started_ns, _, _ = _HEADER.unpack_from(data, 0)
        self.meta: tuple[int, ...] = struct.unpack_from(f"<{META_WORDS}q", data, _META_OFFSET)
        self.position = position
        self.lost = 0

    @property
    def fields(self) -> int:
        """Words of a record that belong to the user of the ring."""
        return int(self._words) - 2

    @property
    def closed(self) -> bool:
        """Whether the writer said that nothing will follow. Ask before the last `read`, not after it."""
        return bool(_WORD.unpack_from(self._data, _CLOSED_OFFSET)[0])

    def read(self) -> npt.NDArray[np.int64]:
        """Return the records since the last call, oldest first: an array of shape (records, fields)."""
        import numpy as np  # the writing side does without

        written = _WORD.unpack_from(self._data, _WRITTEN_OFFSET)[0]
        first = max(self.position, written - self._capacity)
        self.lost += first - self.position
        self.position = max(written, self.position)
        numbers = np.arange(first, written, dtype=np.int64)
        ring = np.frombuffer(self._data, np.int64, self._capacity * self._words, _HEADER_BYTES)
        records = ring.reshape(self._capacity, self._words)[numbers % self._capacity]
        whole = (records[:, 0] == numbers + 1) & (records[:, -1] == numbers + 1)
        self.lost += int(len(whole) - whole.sum())
        fields: npt.NDArray[np.int64] = records[whole, 1:-1]
        return fields


def open_reader(path: Path, position: int = 0) -> RecordReader | None:
    """Open a ring to read from a position; None if the file is gone, not yet whole, or no ring."""
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    if len(data) < _HEADER_BYTES:
        return None
    magic, words, capacity, *_ = _HEADER.unpack_from(data, 0)
    sound = magic == _MAGIC and words > 2 and capacity > 0 and len(data) >= _HEADER_BYTES + words * capacity * 8
    return RecordReader(path, data, position) if sound else None


def _map_new_file(path: Path, size: int) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _reserve(descriptor, size)
        return mmap.mmap(descriptor, size)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _reserve(descriptor: int, size: int) -> None:
    # A sparse file would be SIGBUS in the training process once the disk is full, so its blocks are claimed now.
    reserve: Any = getattr(os, "posix_fallocate", None)
    if reserve is not None:
        reserve(descriptor, 0, size)
        return
    block = bytes(1 << 16)
    for at in range(0, size, len(block)):
        os.write(descriptor, block[: min(len(block), size - at)])
