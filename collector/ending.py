"""What ends a command from outside: it unwinds as at Ctrl-C, so that no file stays half and what it started ends, too."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALLED = 128
"""A shell adds this to the number of the signal that ended a command."""


@contextmanager
def unwind_at_signals(on_signal: Callable[[int], None] = lambda number: None) -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise SystemExit meanwhile, after `on_signal` was told of the number.

    What is ignored, as SIGHUP is below nohup, stays so; after the first signal both are, for what is left to do is tidying.
    """
    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]

    def leave(number: int, frame: FrameType | None) -> None:
        for each in heard:
            signal.signal(each, signal.SIG_IGN)
        on_signal(number)
        raise SystemExit(SIGNALLED + number)

    before = {number: signal.signal(number, leave) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
