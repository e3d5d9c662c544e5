"""Stepscope's training side: `Profiler`, ranges, stages and queues of your own, `estimate`, and `open_run`.

Importing this package imports neither torch nor pyarrow: a name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collector.estimating.estimation import estimate
    from collector.format.run import Run, open_run
    from collector.marks.queues import queue
    from collector.marks.ranges import pop_range, push_range, record
    from collector.marks.stages import stage
    from collector.session.profiler import Profiler, active_profiler

__all__ = [
    "Profiler",
    "Run",
    "active_profiler",
    "estimate",
    "open_run",
    "pop_range",
    "push_range",
    "queue",
    "record",
    "stage",
]

_HOMES = {
    "Profiler": "collector.session.profiler",
    "Run": "collector.format.run",
    "active_profiler": "collector.session.profiler",
    "estimate": "collector.estimating.estimation",
    "open_run": "collector.format.run",
    "pop_range": "collector.marks.ranges",
    "push_range": "collector.marks.ranges",
    "queue": "collector.marks.queues",
    "record": "collector.marks.ranges",
    "stage": "collector.marks.stages",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'collector' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
