"""Read a trace further than its events have been taken, so that several processes can digest pieces of it side by side.

A piece ends where the text looks like the end of an event, which is what the reader tries first, too. Where that turns
out to be wrong, or a piece can only be told from what came before, all that was read since goes back to the reader.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from collector.format.schema.errors import TraceError
from collector.traces.kineto.digest import Digest, NeedsHistoryError, digest
from collector.traces.kineto.events import EVENTS, UNREADABLE
from collector.traces.kineto.stream import SPARE_FRAMES, Advance, Chunk, descend, find_boundaries
from collector.traces.kineto.team import Piece, Team

_LONGEST_BYTES = 24 << 20
_MARGIN_FRAMES = 60


@dataclass
class Ahead:
    """`team` digests, and so does this process while none of the team is free."""

    team: Team

    def read(
        self, text: bytes, blocks: Iterator[bytes], advance: Advance
    ) -> Generator[Digest, None, tuple[bytes, Iterator[bytes]]]:
        """Yield the digests of pieces in order. Return the text and the blocks that are left for the reader."""
        frames = _count_frames() + SPARE_FRAMES + _MARGIN_FRAMES
        with self.team:
            return (yield from self._read(_Unread(text, len(text), ()), blocks, (advance, frames)))

    def _read(
        self, unread: _Unread, blocks: Iterator[bytes], how: tuple[Advance, int]
    ) -> Generator[Digest, None, tuple[bytes, Iterator[bytes]]]:
        advance, frames = how
        waiting: deque[Piece] = deque()
        while True:
            block, blocks = _take(blocks)
            if block is not None:
                piece, unread = unread.add(block).cut()
                if piece is not None:
                    self._begin(piece, frames)
                    waiting.append(piece)
            is_last = block is None or sum(unread.sizes) > _LONGEST_BYTES
            while waiting and (is_last or not waiting[0].is_out or len(waiting) > self._most):
                found = self._finish(waiting[0])
                if found is None:
                    read = [_split(piece.text, piece.left, piece.sizes) for piece in waiting]
                    first = waiting[0]
                    return first.text[: first.left], chain(*read, unread.split(), blocks)
                advance(waiting.popleft().end)
                yield found
            if is_last:
                return unread.text[: unread.left], chain(unread.split(), blocks)

    @property
    def _most(self) -> int:
        return 2 * self.team.size + 2

    def _begin(self, piece: Piece, frames: int) -> None:
        """Hand a piece out, or digest it here."""
        if not self.team.hand_out(piece, frames):
            piece.digest = _digest(piece)

    def _finish(self, piece: Piece) -> Digest | None:
        self.team.wait_for(piece)
        return piece.digest or _digest(piece)


@dataclass(frozen=True)
class _Unread:
    """What has been read and is in no piece, as in `Piece`."""

    text: bytes
    left: int
    sizes: tuple[int, ...]

    def add(self, block: bytes) -> _Unread:
        return _Unread(self.text + block, self.left, (*self.sizes, len(block)))

    def cut(self) -> tuple[Piece | None, _Unread]:
        """Cut a piece off where the reader tries to first, if there is such a place."""
        match = next(find_boundaries(self.text), None)
        if match is None:
            return None, self
        piece = Piece(self.text, self.left, self.sizes, match.start() + 1, match.end())
        rest = self.text[piece.end :]
        return piece, _Unread(rest, len(rest), ())

    def split(self) -> Iterator[bytes]:
        return _split(self.text, self.left, self.sizes)


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


def _count_frames() -> int:
    frame, count = sys._getframe(), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count
