"""Read and write trace files, and make runs (profiles that the server shows) from them.

`formats` has one file per trace format. This package must not import torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collector.traces.importing import import_trace
    from collector.traces.reading import read_trace

__all__ = ["import_trace", "read_trace"]

_HOMES = {"import_trace": "collector.traces.importing", "read_trace": "collector.traces.reading"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'collector.traces' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
