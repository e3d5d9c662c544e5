"""Every error that Stepscope raises on purpose. The message says what, where, and what to do next.

StepscopeError
├── UsageError            the API or a command was called in a way that cannot work
│   ├── SessionError      a Profiler was started, stopped or analysed out of turn
│   ├── OptionError       an unknown option, or a value that an option does not take
│   └── RangeError        ranges that are not balanced, or items without a batch
├── RunError              a run directory cannot be read as asked
│   ├── RunNotFoundError  there is no such run
│   │   └── ClosedRunError its folder may not be read: it is another user's
│   ├── LinkedRunError    a link lies inside the run
│   ├── NewerSchemaError  the run was written by a newer version
│   ├── TableMissingError the run has no such table (never collected, switched off, or failed)
│   └── TableBrokenError  a file of the run is damaged
├── TraceError            a trace file cannot be read
└── OutputError           a path cannot be written
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar


class StepscopeError(Exception):
    """Base class: catch it to catch every error that Stepscope raises on purpose."""


class UsageError(StepscopeError):
    pass


class SessionError(UsageError):
    pass


class OptionError(UsageError):
    pass


class RangeError(UsageError):
    pass


class RunError(StepscopeError):
    pass


class RunNotFoundError(RunError):
    pass


class ClosedRunError(RunNotFoundError):
    pass


class LinkedRunError(RunError):
    pass


class NewerSchemaError(RunError):
    pass


class TableMissingError(RunError):
    pass


class TableBrokenError(RunError):
    pass


class TraceError(StepscopeError):
    pass


class OutputError(StepscopeError):
    pass


P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")


def read_or(absent: A, read: Callable[P, T], *args: P.args, **given: P.kwargs) -> T | A:
    """Return the result of `read`; if it raises RunError, `absent`: a damaged table is treated as never collected."""
    try:
        return read(*args, **given)
    except RunError:
        return absent
