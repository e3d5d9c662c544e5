"""Stepscope's training side: `Profiler`, ranges, your own stages and queues, `estimate`, `open_run`, and the errors.

Importing this package imports neither torch nor pyarrow: a name is loaded at its first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collector.estimating.estimation import estimate
    from collector.format.schema.errors import (
        ClosedRunError,
        LinkedRunError,
        NewerSchemaError,
        OptionError,
        OutputError,
        RangeError,
        RunError,
        RunNotFoundError,
        SessionError,
        StepscopeError,
        TableBrokenError,
        TableMissingError,
        TraceError,
        UsageError,
    )
    from collector.marks.ranges import pop_range, push_range, record
    from collector.marks.stages import stage
    from collector.marks.watching import queue, watch
    from collector.notebook.run import Run, open_run
    from collector.notebook.writing import write_trace
    from collector.session.profiler import Profiler, active_profiler

    __version__: str

__all__ = [
    "ClosedRunError",
    "LinkedRunError",
    "NewerSchemaError",
    "OptionError",
    "OutputError",
    "Profiler",
    "RangeError",
    "Run",
    "RunError",
    "RunNotFoundError",
    "SessionError",
    "StepscopeError",
    "TableBrokenError",
    "TableMissingError",
    "TraceError",
    "UsageError",
    "__version__",
    "active_profiler",
    "estimate",
    "open_run",
    "pop_range",
    "push_range",
    "queue",
    "record",
    "stage",
    "watch",
    "write_trace",
]

_HOMES = {
    "Profiler": "session.profiler",
    "Run": "notebook.run",
    "__version__": "version",
    "active_profiler": "session.profiler",
    "estimate": "estimating.estimation",
    "open_run": "notebook.run",
    "pop_range": "marks.ranges",
    "push_range": "marks.ranges",
    "queue": "marks.watching",
    "record": "marks.ranges",
    "stage": "marks.stages",
    "watch": "marks.watching",
    "write_trace": "notebook.writing",
    **{name: "format.schema.errors" for name in __all__ if name.endswith("Error")},
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'collector' has no attribute {name!r}")
    home = _HOMES[name]
    if home == "session.profiler" and not importlib.import_module("collector.environment").is_main_interpreter():
        home = "session.refused"
    value = getattr(importlib.import_module(f"collector.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})
