"""The message for a trace whose reading fails in an unforeseen way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from collector.edge import Edge
from collector.format.schema.errors import StepscopeError, TraceError

_LONGEST_REASON = 200


@contextmanager
def explain_failure(path: Path, where: Callable[[], str]) -> Iterator[None]:
    """Turn a failure into one line that names the file and the place in it.

    Our own errors pass, and those of the disk, which the caller tells of. Files come from anywhere, so whatever the
    libraries below raise at one is a fault of that file.
    """
    failures: list[Exception] = []
    with Edge(failures.append):
        yield
    if not failures:
        return
    if isinstance(failures[0], (StepscopeError, OSError)):
        raise failures[0]
    raise TraceError(f"{path} cannot be read: {_name(failures[0])} ({where()})") from failures[0]


def _name(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "it needs more memory than there is"
    reason = " ".join(str(error).split())[:_LONGEST_REASON]
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__
