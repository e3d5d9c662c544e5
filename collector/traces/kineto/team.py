"""The processes that help to read a trace. One that dies, or does not answer, costs time and nothing else."""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType

from collector.expendable import build_environment
from collector.traces.kineto.digest import Digest
from collector.traces.kineto.helper import ANSWER, ORDER, READY, write_all

ANSWER_S = 60.0
"""A helper that has not answered for so long is taken for lost."""
_FILES = 2
"""Pieces that a helper has: one that it works on and one that waits, so that it never does."""
_MODULE = "collector.traces.kineto.helper"


@dataclass
class Piece:
    """Some events to be digested: the text up to `cut`. What begins at `end` belongs to the next piece.

    Of the text, `left` bytes were left of the piece before; behind them stand the blocks that were read, of some sizes.
    """

    text: bytes
    left: int
    sizes: tuple[int, ...]
    cut: int
    end: int
    is_out: bool = False
    """Whether a helper has it."""
    digest: Digest | None = None

    def spell(self) -> list[bytes | memoryview]:
        """Return the events as a JSON list, in parts."""
        return [b"[", memoryview(self.text)[: self.cut], b"]"]


class Helper:
    """One process. Raises OSError if it cannot be started."""

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
        """The descriptor on which it says that it has answered."""
        return self._process.stdout.fileno() if self._process.stdout else -1

    @property
    def is_free(self) -> bool:
        return self._is_ready and len(self._asked) < _FILES

    @property
    def left_s(self) -> float:
        """How long its answer may still take."""
        return self._since_s + ANSWER_S - time.monotonic() if self._asked else ANSWER_S

    def ask(self, piece: Piece, frames: int) -> None:
        """Hand a piece out. Raises OSError if the helper is gone, or there is no room."""
        number, parts = self._count % _FILES, piece.spell()
        write_all(self._files[number], parts)
        orders = self._process.stdin
        if orders is not None:
            orders.write(ORDER.pack(number, sum(map(len, parts)), frames, sys.getrecursionlimit()))
        self._since_s = self._since_s if self._asked else time.monotonic()
        self._count += 1
        self._asked.append(piece)
        piece.is_out = True

    def take_answer(self) -> None:
        """Take the answer that is there. Raises OSError if the helper has died instead."""
        answer = os.read(self.answers, ANSWER.size)
        if len(answer) < ANSWER.size:
            raise OSError("the helper has ended")
        size = ANSWER.unpack(answer)[0]
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
        """End it; whatever it was asked for comes back undone."""
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


def _take(helper: Helper) -> bool:
    try:
        helper.take_answer()
    except OSError:
        return False
    return True


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
class Team:
    """Some helpers, which run between entering and leaving; fewer where they cannot be started."""

    size: int
    _helpers: list[Helper] = field(default_factory=list)

    def __enter__(self) -> Team:
        with suppress(OSError, AttributeError):  # a system without memory that can be shared so
            self._helpers.extend(Helper() for _ in range(self.size))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for helper in self._helpers:
            helper.close()
        self._helpers.clear()

    def hand_out(self, piece: Piece, frames: int) -> bool:
        """Say whether a helper has taken a piece."""
        self.take_answers(0.0)
        for helper in list(self._helpers):
            if helper.is_free:
                try:
                    helper.ask(piece, frames)
                except OSError:
                    self._lose(helper)
                    continue
                return True
        return False

    def wait_for(self, piece: Piece) -> None:
        """Wait until a piece has come back, digested or not."""
        while piece.is_out:
            self.take_answers(min((helper.left_s for helper in self._helpers), default=0.0))

    def take_answers(self, wait_s: float) -> None:
        """Take the answers that are there, or come within some seconds."""
        poll = select.poll()
        by_file = {helper.answers: helper for helper in self._helpers}
        for file in by_file:
            poll.register(file, select.POLLIN)
        lost = [
            helper for helper in (by_file[file] for file, _ in poll.poll(max(wait_s, 0.0) * 1000)) if not _take(helper)
        ]
        for helper in (*lost, *(helper for helper in self._helpers if helper.left_s <= 0 and helper not in lost)):
            self._lose(helper)

    def _lose(self, helper: Helper) -> None:
        helper.close()
        self._helpers.remove(helper)
