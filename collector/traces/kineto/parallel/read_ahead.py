"""Read a trace further than its events have been taken, so that several processes can digest pieces of it side by side.

A piece ends where the text looks like the end of an event, which is what the reader tries first, too. Where that turns
out to be wrong, or a piece can only be told from what came before, all that was read since goes back to the reader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from traceback import walk_stack

from collector.format.schema.errors import TraceError
from collector.traces.kineto.decode.digest import Digest, NeedsHistoryError, digest
from collector.traces.kineto.decode.events import EVENTS, UNREADABLE, Chunk
from collector.traces.kineto.decode.stream import SPARE_FRAMES, Advance, Digests, descend, find_boundaries
from collector.traces.kineto.parallel.pool import Piece, Pool

_LONGEST_BYTES = 24 << 20
_MARGIN_FRAMES = 60


def read_ahead(pool: Pool, text: bytes, blocks: Iterator[bytes], advance: Advance) -> Digests:
    """Yield the digests of pieces in order. Return the text and the blocks that are left for the reader.

    The pool digests, and so does this process while no worker is free.
    """
    frames = sum(1 for _ in walk_stack(None)) + SPARE_FRAMES + _MARGIN_FRAMES
    with pool:
        return (yield from _read(pool, text, blocks, (advance, frames)))


def _read(pool: Pool, text: bytes, blocks: Iterator[bytes], how: tuple[Advance, int]) -> Digests:
    advance, frames = how
    waiting: deque[Piece] = deque()
    # What has been read and is in no piece: the text, as `Piece` has it.
    left = len(text)
    sizes: list[int] = []
    while True:
        block, blocks = _take(blocks)
        if block is not None:
            text += block
            sizes.append(len(block))
            # Where the reader tries to cut first.
            match = next(find_boundaries(text), None)
            if match is not None:
                piece = Piece(text, left, tuple(sizes), match.start() + 1, match.end())
                text = text[piece.end :]
                left, sizes = len(text), []
                waiting.append(piece)
                if not pool.hand_out(piece, frames):
                    piece.digest = _digest(piece)
        is_last = block is None or sum(sizes) > _LONGEST_BYTES
        while waiting and (is_last or not waiting[0].is_out or len(waiting) > 2 * pool.size + 2):
            pool.wait_for(waiting[0])
            found = waiting[0].digest or _digest(waiting[0])
            if found is None:
                read = [_split(piece.text, piece.left, piece.sizes) for piece in waiting]
                first = waiting[0]
                return first.text[: first.left], chain(*read, _split(text, left, sizes), blocks)
            advance(waiting.popleft().end)
            yield found
        if is_last:
            return text[:left], chain(_split(text, left, sizes), blocks)


def _split(text: bytes, start: int, sizes: Sequence[int]) -> Iterator[bytes]:
    """Yield the blocks that a text was made of, from a place on."""
    for size in sizes:
        yield text[start : start + size]
        start += size


def _digest(piece: Piece) -> Digest | None:
    """Return the digest of a piece, None if it cannot be told by itself."""
    text = b"".join(piece.spell())
    try:
        return digest(Chunk(descend(EVENTS.decode, text), text))
    except (*UNREADABLE, NeedsHistoryError):
        return None


def _take(blocks: Iterator[bytes]) -> tuple[bytes | None, Iterator[bytes]]:
    """Return the next block, None if there is none, and the blocks that are left.

    An error is for whoever has taken all that came before it.
    """
    try:
        return next(blocks, None), blocks
    except TraceError as error:
        return None, map(_raise, (error,))


def _raise(error: TraceError) -> bytes:
    raise error
