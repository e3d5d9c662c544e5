"""End a command on SIGTERM or SIGHUP as on Ctrl-C: no file stays half written, and its child processes end too."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALLED = 128
"""A shell adds this to the signal number when a signal ended a command."""
_AGAIN_S = 0.01


@contextmanager
def unwind_at_signals(on_signal: Callable[[int], None] = lambda number: None) -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise SystemExit inside the block, after calling `on_signal` with the signal number.

    Ignored signals, such as SIGHUP under nohup, stay ignored. From the first signal to the end of the block both are
    ignored, because only tidying is left. A SystemExit or Ctrl-C that Python drops in the block is raised again.
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

    Python drops an exception that a signal raises in a fork hook, in a weak reference's callback or in an unread
    generator. It passes such an exception to `sys.unraisablehook` and goes on.
    """
    hook, alarm = sys.unraisablehook, signal.getsignal(signal.SIGALRM)

    def keep(dropped: sys.UnraisableHookArgs) -> None:
        error = dropped.exc_value
        is_main = threading.current_thread() is threading.main_thread()
        if not isinstance(error, (SystemExit, KeyboardInterrupt)) or not is_main:
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
