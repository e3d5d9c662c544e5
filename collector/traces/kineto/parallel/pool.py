"""A pool of processes that digest pieces of a trace in parallel, ahead of the reader.

A piece ends at a likely end of an event; the reader would try the same guess first. If this guess is wrong, or a piece
needs earlier events, all text from this piece on goes back to the reader. A worker that dies, or does not answer, only
costs time.
"""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from traceback import walk_stack

from collector.expendable import build_environment
from collector.traces.kineto.decode.digest import Digest
from collector.traces.kineto.decode.stream import SPARE_FRAMES, Advance, Digests, find_boundaries
from collector.traces.kineto.parallel.worker import ANSWER, ORDER, READY, read_piece, write_all

ANSWER_S = 60.0
"""A worker without an answer for this long is considered lost."""
_FILES = 2
"""The number of pieces per worker: one in work and one waiting, so that the worker never waits."""
_MODULE = "collector.traces.kineto.parallel.worker"


@dataclass
class Piece:
    """A section of the events for one worker: the text up to `cut`, where an event ends. The next begins at `end`.

    The text is the rest of the previous piece, `left` bytes, and the blocks that were read after it, whose lengths are
    `sizes`.
    """

    text: bytes
    left: int
    sizes: tuple[int, ...]
    cut: int
    end: int
    is_out: bool = False
    """Whether a worker has the piece."""
    digest: Digest | None = None

    def spell(self) -> list[bytes | memoryview]:
        """Return the events of the piece as a JSON list, split into several byte strings."""
        return [b"[", memoryview(self.text)[: self.cut], b"]"]


class Worker:
    """One worker process. Raises OSError if it cannot be started."""

    def __init__(self) -> None:
        self._files = [os.memfd_create("stepscope", os.MFD_CLOEXEC) for _ in range(_FILES)]
        try:
            self._process = _start(self._files)
        except OSError:
            self._close_files()
            raise
        self._asked: deque[Piece] = deque()
        self._count = 0
        self._is_ready = False
        self._since_s = time.monotonic()

    @property
    def answers(self) -> int:
        return self._process.stdout.fileno() if self._process.stdout else -1

    @property
    def is_free(self) -> bool:
        return self._is_ready and len(self._asked) < _FILES

    @property
    def left_s(self) -> float:
        return self._since_s + ANSWER_S - time.monotonic() if self._asked else ANSWER_S

    def ask(self, piece: Piece, frames: int) -> None:
        """Send a piece. Raises OSError if the worker is gone, or the shared memory has no room."""
        number, parts = self._count % _FILES, piece.spell()
        write_all(self._files[number], parts)
        orders = self._process.stdin
        if orders is not None:
            orders.write(ORDER.pack(number, sum(map(len, parts)), frames, sys.getrecursionlimit()))
        self._since_s = self._since_s if self._asked else time.monotonic()
        self._count += 1
        self._asked.append(piece)
        piece.is_out = True

    def take_answer(self) -> bool:
        """Read the waiting answer. Return False if the worker has died instead."""
        with suppress(OSError):
            answer = os.read(self.answers, ANSWER.size)
            if len(answer) == ANSWER.size:
                self._take(*ANSWER.unpack(answer))
                return True
        return False

    def _take(self, size: int) -> None:
        self._since_s = time.monotonic()
        if not self._is_ready:
            self._is_ready = size == READY
            return
        file = self._files[(self._count - len(self._asked)) % _FILES]
        piece = self._asked.popleft()
        piece.is_out = False
        if size > 0:
            piece.digest = pickle.loads(os.pread(file, size, 0))

    def close(self) -> None:
        """End the worker. Its unfinished pieces keep their `digest` None."""
        for piece in self._asked:
            piece.is_out = False
        self._asked.clear()
        with suppress(OSError):
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._close_files()

    def _close_files(self) -> None:
        for file in self._files:
            os.close(file)


def _start(files: list[int]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "collector.expendable", _MODULE, *map(str, files)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd="/",  # a file of the user's in the current folder must not shadow a module
        env=build_environment(),
        pass_fds=files,
        start_new_session=True,
    )


@dataclass
class Pool:
    """A pool of workers that run inside the `with` block. There are fewer than `size` if some cannot start."""

    size: int
    _workers: list[Worker] = field(default_factory=list)

    def __enter__(self) -> Pool:
        with suppress(OSError, AttributeError):  # a system without memory that can be shared so
            self._workers.extend(Worker() for _ in range(self.size))
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.close()
        self._workers.clear()

    def hand_out(self, piece: Piece, frames: int) -> bool:
        """Offer a piece to the workers; return whether a worker has taken it."""
        self.take_answers(0.0)
        for worker in list(self._workers):
            if worker.is_free:
                try:
                    worker.ask(piece, frames)
                except OSError:
                    self._lose(worker)
                    continue
                return True
        return False

    def wait_for(self, piece: Piece) -> None:
        """Wait until no worker has the piece any more. Its `digest` is None if the worker failed."""
        while piece.is_out:
            self.take_answers(min((worker.left_s for worker in self._workers), default=0.0))

    def take_answers(self, wait_s: float) -> None:
        """Read the answers that are waiting, and those that arrive within `wait_s` seconds."""
        poll = select.poll()
        by_file = {worker.answers: worker for worker in self._workers}
        for file in by_file:
            poll.register(file, select.POLLIN)
        ready = [by_file[file] for file, _ in poll.poll(max(wait_s, 0.0) * 1000)]
        lost = [worker for worker in ready if not worker.take_answer()]
        lost += [worker for worker in self._workers if worker.left_s <= 0 and worker not in lost]
        for worker in lost:
            self._lose(worker)

    def _lose(self, worker: Worker) -> None:
        worker.close()
        self._workers.remove(worker)


_LONGEST_BYTES = 24 << 20
_MARGIN_FRAMES = 60


def read_ahead(pool: Pool, text: bytes, blocks: Iterator[bytes], advance: Advance) -> Digests:
    """Yield digests of pieces in order, by workers and this process. Return the text and blocks that are left."""
    frames = sum(1 for _ in walk_stack(None)) + SPARE_FRAMES + _MARGIN_FRAMES
    with pool:
        return (yield from _read(pool, text, blocks, (advance, frames)))


def _read(pool: Pool, text: bytes, blocks: Iterator[bytes], how: tuple[Advance, int]) -> Digests:
    advance, frames = how
    waiting: deque[Piece] = deque()
    # The number of bytes that were read and are in no piece yet. The text has the form that `Piece` expects.
    left = len(text)
    sizes: list[int] = []
    while True:
        block = next(blocks, None)
        if block is not None:
            text += block
            sizes.append(len(block))
            # The first place where the reader tries to cut.
            match = next(find_boundaries(text), None)
            if match is not None:
                piece = Piece(text, left, tuple(sizes), match.start() + 1, match.end())
                text = text[piece.end :]
                left, sizes = len(text), []
                waiting.append(piece)
                if not pool.hand_out(piece, frames):
                    piece.digest = read_piece(b"".join(piece.spell()), SPARE_FRAMES)
        is_last = block is None or sum(sizes) > _LONGEST_BYTES
        while waiting and (is_last or not waiting[0].is_out or len(waiting) > 2 * pool.size + 2):
            pool.wait_for(waiting[0])
            found = waiting[0].digest or read_piece(b"".join(waiting[0].spell()), SPARE_FRAMES)
            if found is None:
                read = [_split(piece.text, piece.left, piece.sizes) for piece in waiting]
                first = waiting[0]
                return first.text[: first.left], chain(*read, _split(text, left, sizes), blocks)
            advance(waiting.popleft().end)
            yield found
        if is_last:
            return text[:left], chain(_split(text, left, sizes), blocks)


def _split(text: bytes, start: int, sizes: Sequence[int]) -> Iterator[bytes]:
    """Yield the blocks of a text from position `start` on; `sizes` are the lengths of these blocks."""
    for size in sizes:
        yield text[start : start + size]
        start += size
