"""A process that digests pieces of a trace for the one that reads it: `python -m collector.traces.kineto.parallel.worker FILE FILE`.

The files are memory that both share, by descriptor: the reader writes a piece into one, and the digest comes back in its
place. An order on the standard input says that a piece is there, a number on the standard output that a digest is.
What fails here is left to the reader, which knows what came before; when it is gone, so is the input.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys

from collector.traces.kineto.decode.digest import NeedsHistoryError, digest
from collector.traces.kineto.decode.events import EVENTS, UNREADABLE, Chunk
from collector.traces.kineto.decode.stream import descend

ORDER = struct.Struct("<qqqq")
"""Which file, the bytes of the piece, the frames to decode it from, and how deep the reader's stack may be."""
ANSWER = struct.Struct("<q")
READY = 0
CANNOT = -1


def main(files: list[int]) -> None:
    """Digest what is asked for until there is nobody to ask."""
    orders, own_limit = sys.stdin.buffer, sys.getrecursionlimit()
    _answer(READY)
    while len(order := orders.read(ORDER.size)) == ORDER.size:
        number, size, frames, limit = ORDER.unpack(order)
        sys.setrecursionlimit(min(limit, own_limit))
        data = _digest(os.pread(files[number], size, 0), frames)
        write_all(files[number], [data])
        _answer(len(data) or CANNOT)


def write_all(file: int, pieces: list[bytes | memoryview]) -> None:
    """Write what is in pieces to the begin of a file. Raises OSError if it does not fit."""
    size = sum(map(len, pieces))
    if size and os.pwritev(file, pieces, 0) != size:
        raise OSError("no room for a piece")


def _digest(text: bytes, frames: int) -> bytes:
    """Return the digest of a piece, nothing if that cannot be told here.

    The piece is decoded from further down than the reader would, so that it accepts all that is accepted here.
    """
    try:
        events = descend(EVENTS.decode, text, frames)
        return pickle.dumps(digest(Chunk(events, text)), protocol=5)
    except (*UNREADABLE, NeedsHistoryError):
        return b""


def _answer(value: int) -> None:
    os.write(sys.stdout.fileno(), ANSWER.pack(value))


if __name__ == "__main__":
    main(list(map(int, sys.argv[1:])))
