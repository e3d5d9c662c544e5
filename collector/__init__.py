"""Stepscope's training side: `Profiler`, ranges, and `open_run`.

Importing this package imports neither torch nor pyarrow: a name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collector.run import Run, open_run
    from collector.session import Profiler

__all__ = ["Profiler", "Run", "open_run"]

_HOMES = {"Profiler": "collector.session", "Run": "collector.run", "open_run": "collector.run"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'collector' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
