"""A process that digests pieces of a trace for a reader process: `python -m collector.traces.kineto.parallel.worker
FILE FILE`.

The files are shared memory, given by descriptor. The reader writes a piece into a file, and the digest replaces it. An
order on standard input announces a piece, a number on standard output announces a digest. Failed pieces are left to the
reader, which has the earlier events. The worker ends when the reader is gone, because the worker's standard input then
ends.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys

from collector.traces.kineto.decode.digest import Digest, NeedsHistoryError, digest
from collector.traces.kineto.decode.events import EVENTS, UNREADABLE, Chunk
from collector.traces.kineto.decode.stream import descend

ORDER = struct.Struct("<qqqq")
"""The file's index, the piece's length in bytes, the stack frames to descend for decoding, and the reader's recursion
limit."""
ANSWER = struct.Struct("<q")
READY = 0
CANNOT = -1


def main(files: list[int]) -> None:
    orders, own_limit = sys.stdin.buffer, sys.getrecursionlimit()
    _answer(READY)
    while len(order := orders.read(ORDER.size)) == ORDER.size:
        number, size, frames, limit = ORDER.unpack(order)
        sys.setrecursionlimit(min(limit, own_limit))
        found = read_piece(os.pread(files[number], size, 0), frames)
        data = b"" if found is None else pickle.dumps(found, protocol=5)
        write_all(files[number], [data])
        _answer(len(data) or CANNOT)


def write_all(file: int, pieces: list[bytes | memoryview]) -> None:
    """Write the byte strings to the start of a file. Raises OSError if they do not fit."""
    size = sum(map(len, pieces))
    if size and os.pwritev(file, pieces, 0) != size:
        raise OSError("no room for a piece")


def read_piece(text: bytes, frames: int) -> Digest | None:
    """Return the parsed events of a JSON list; None if the list is damaged or needs earlier events.

    The text is decoded `frames` stack frames further down. The worker goes deeper than the reader, so the reader can
    decode every event that a worker accepts.
    """
    try:
        return digest(Chunk(descend(EVENTS.decode, text, frames), text))
    except (*UNREADABLE, NeedsHistoryError):
        return None


def _answer(value: int) -> None:
    os.write(sys.stdout.fileno(), ANSWER.pack(value))


if __name__ == "__main__":
    main(list(map(int, sys.argv[1:])))
