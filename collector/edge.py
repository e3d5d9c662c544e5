"""Keep our exceptions from foreign code (the training, other people's objects), and our frames out of its tracebacks and
warnings."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_log = logging.getLogger("stepscope")


class Edge:
    """An edge between our code and foreign code: `with Edge(tell):` catches every Exception of its block and calls
    `tell` with it; KeyboardInterrupt and SystemExit pass, because they are meant for the training.

    The code after the block then runs. No Exception passes, because other people's objects may raise anything, and the
    training must go on. Entering and leaving the block takes half a microsecond; code that runs several times a step
    uses its own `try`.
    """

    __slots__ = ("_tell",)

    def __init__(self, tell: Callable[[Exception], object]) -> None:
        self._tell = tell

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self._tell(error)
        return True


def attempt(make: Callable[[], T], tell: Callable[[Exception], object] = lambda error: None) -> T | None:
    """Return the result of `make`. If `make` raises an exception, call `tell` with it and return None."""
    with Edge(tell):
        return make()
    return None


def say(text: str) -> None:
    """Print a line on stderr, unless the script has closed it or taken it away: print() would write to stdout then."""
    if sys.stderr is not None:
        with contextlib.suppress(Exception):
            sys.stderr.write(f"stepscope: {text}\n")


def log_failure(text: str, *args: object, level: int = logging.WARNING) -> Edge:
    """Return an edge that only logs: `text`, formatted with `args`, which names the consequence, then the exception."""
    return Edge(lambda error: _log.log(level, f"stepscope: {text}: %r", *args, error))


_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def hide_frames(error: BaseException) -> None:
    """Remove all of our frames at the start of an error's traceback; `hide_frame` removes only one frame.

    Use it for an error that a signal handler, such as Ctrl-C's, raises while our own code holds up the training.
    """
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        traceback = traceback.tb_next
    BaseException.with_traceback(error, traceback)


def hide_frame(error: BaseException) -> None:
    """Remove the calling function from the traceback of an error that the function has just caught and will raise
    again.

    Hooks on the hot path, between the user's code and torch, use it. `except BaseException as error: hide_frame(error);
    raise` stands around the whole hook, with nothing else before the `raise`. Other code uses `unseen`. Under Python
    3.10 the frame stays: there, a bare `raise` adds the frame again.
    """
    traceback = error.__traceback__
    if traceback is not None:
        # Not by assignment: the class of the user's error may refuse it, as a frozen dataclass does.
        BaseException.with_traceback(error, traceback.tb_next)


class _Unseen:
    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            hide_frame(error)


unseen = _Unseen()
"""`with unseen:` removes its function from the traceback of an error, in a tenth of a microsecond: not for hot paths.
"""


UNCOUNTED = " [importlib_bootstrap]"
"""End of the file name of code that `uncounted` has marked."""
_marked: dict[CodeType, CodeType] = {}


def uncounted(function: F) -> F:
    """Let `warnings` name the same line as without us: for a function of ours that calls foreign code for its caller.

    `warnings.warn(…, stacklevel=2)` names the caller's line, and decides by its module what to show and what to repeat.
    Python leaves the frames of its own import system out of that count, by two words in the file name of their code.
    """
    code: CodeType = function.__code__
    if code not in _marked:
        _marked[code] = code.replace(co_filename=code.co_filename + UNCOUNTED)
    function.__code__ = _marked[code]
    return function
