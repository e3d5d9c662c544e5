"""The edge between our code and what is not ours: the user's training, other people's objects, a plug-in."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from types import TracebackType

_log = logging.getLogger("stepscope")


class Edge:
    """`with Edge(tell):` lets no exception out of its block: `tell` is called with it, and what follows runs.

    It stops every Exception, because nobody can list what other people's objects raise when they are touched, and the
    training must go on. KeyboardInterrupt and SystemExit pass: they are meant for the training. Entering and leaving
    takes half a microsecond, so what runs several times a step has a `try` of its own.
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


def log_failure(text: str, *args: object, level: int = logging.WARNING) -> Edge:
    """Return an edge that only logs: `text` says what does not happen then, the exception follows it."""
    return Edge(lambda error: _log.log(level, f"stepscope: {text}: %r", *args, error))


_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def hide_frames(error: BaseException) -> None:
    """Take all frames of ours that the traceback begins with out of it, otherwise as `hide_frame` does.

    For an error that came while our own code held the training back: raised by a handler of a signal, such as Ctrl-C.
    """
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        traceback = traceback.tb_next
    BaseException.with_traceback(error, traceback)


def hide_frame(error: BaseException) -> None:
    """Take the calling function out of the traceback of an error that it has just caught and is to raise again.

    For hooks on the hot path, between the user's code and torch: `except BaseException as error: hide_frame(error); raise`,
    with nothing else before the `raise`, around all of the hook. Others use `unseen`. Under Python 3.10 the frame stays:
    there a bare `raise` brings it back.
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
"""`with unseen:` is `hide_frame` for the function that it stands in, at a tenth of a microsecond, where nothing is hot."""
