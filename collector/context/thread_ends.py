"""Close a detailed window on its own thread, where another thread cannot: at the thread's end, or at its next call."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Protocol

from collector.context.hooks import find_tracer, skip_code
from collector.context.signals import ElsewhereWatcher


class Session(Protocol):
    """A detailed window: the process and the thread that it belongs to, and whether its session has not ended."""

    pid: int
    thread: int
    is_open: bool


class EndOfThread:
    """A thread-local object that calls `close` as the last action of its thread.

    A session belongs to its thread. A session left by an ended thread ends the process with a segmentation fault.
    """

    def __init__(self, window: Session, close: Callable[[Any], None]) -> None:
        self._window = window
        self._close = close

    def __del__(self) -> None:
        window = self._window
        # A forked child has a copy of this object.
        is_own = (os.getpid(), threading.get_ident()) == (window.pid, window.thread)
        if is_own and window.is_open:
            self._close(window)


class NextCall:
    """Closes a window that another thread has left open, at the next call of a model on the window's own thread."""

    def __init__(self, window: Session, close: Callable[[Any], None], place: list[ElsewhereWatcher | None]) -> None:
        self._window, self._close, self._place = window, close, place
        self._may_trace = find_tracer()
        skip_code(NextCall.starts.__code__)
        skip_code(NextCall.ends.__code__)

    def starts(self, is_inside: int) -> bool:
        if threading.get_ident() == self._window.thread and not self._may_trace():
            self._place[0] = None
            self._close(self._window)
        return True

    def ends(self) -> None:
        """Do nothing."""
