"""What ends a command from outside: it unwinds as at Ctrl-C, so that no file stays half and what it started ends, too."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALLED = 128
"""A shell adds this to the number of the signal that ended a command."""
_AGAIN_S = 0.01


@contextmanager
def unwind_at_signals(on_signal: Callable[[int], None] = lambda number: None) -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise SystemExit meanwhile, after `on_signal` was told of the number.

    What is ignored, as SIGHUP is below nohup, stays so; after the first signal both are, for what is left to do is tidying.
    An end that Python drops, Ctrl-C as well, is raised again.
    """
    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]

    def leave(number: int, frame: FrameType | None) -> None:
        for each in heard:
            signal.signal(each, signal.SIG_IGN)
        on_signal(number)
        raise SystemExit(SIGNALLED + number)

    before = {number: signal.signal(number, leave) for number in heard}
    try:
        with _raise_what_is_dropped():
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _raise_what_is_dropped() -> Iterator[None]:
    """Raise SystemExit and KeyboardInterrupt again where Python drops them.

    Python drops what a signal raises in a hook of fork, in a callback of a weak reference and in a generator that nobody
    reads: it passes it to `sys.unraisablehook` and goes on.
    """
    hook, alarm = sys.unraisablehook, signal.getsignal(signal.SIGALRM)

    def keep(dropped: sys.UnraisableHookArgs) -> None:
        error = dropped.exc_value
        if not isinstance(error, (SystemExit, KeyboardInterrupt)) or not _is_main():
            hook(dropped)
            return
        again = type(error)(*error.args)  # the error itself holds the frames that it passed

        def leave(number: int, frame: FrameType | None) -> None:
            raise again

        signal.signal(signal.SIGALRM, leave)
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)

    sys.unraisablehook = keep
    try:
        yield
    finally:
        sys.unraisablehook = hook
        if signal.getsignal(signal.SIGALRM) is not alarm:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, alarm)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
