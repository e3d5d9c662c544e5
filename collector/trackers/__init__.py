"""Send figures of a run to the user's experiment tracker: a file per tracker, which names the class TRACKER.

May import nothing else of ours. A tracker's library is the user's: a file imports it only when the user logs to it.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol


class Writer(Protocol):
    """A SummaryWriter of TensorBoard, or an object with the same methods."""

    def add_scalar(self, *args: Any, **kwargs: Any) -> Any: ...
    def add_text(self, *args: Any, **kwargs: Any) -> Any: ...
    def flush(self) -> Any: ...


LogTo = str | Callable[[dict[str, Any], int], object] | Writer
"""The values of the option `log_to`: the name of a tracker, a function, or a SummaryWriter."""


class Tracker(Protocol):
    """The user's run in a tracker. `find` is called on the training thread and must not wait; the others are called on
    another thread, and may raise or wait for a network."""

    def find(self) -> bool:
        """Return whether the user's run is there. It is then the run of all later calls."""

    def log(self, figures: Mapping[str, float], step: int) -> None:
        """Log figures of a step, without a change to the user's own count of steps."""

    def conclude(self, figures: Mapping[str, float], texts: Mapping[str, str], report: Path | None, step: int) -> None:
        """Log the figures and texts of the whole run, and its report (HTML)."""


def list_names() -> list[str]:
    return sorted(each.name for each in pkgutil.iter_modules(__path__) if not each.name.startswith("_"))


def takes(value: object) -> bool:
    """Return whether `log_to` accepts a value."""
    return value in list_names() if isinstance(value, str) else hasattr(value, "add_scalar") or callable(value)


def is_installed(name: str) -> bool:
    """Return whether a library is installed. A folder of its name, as some trackers write, is not the library."""
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return found is not None and found.origin is not None


def open_tracker(log_to: Any, run_path: Path) -> Tracker:
    """Return the tracker of a value that `takes` accepts. ImportError if its library is missing or broken."""
    if not isinstance(log_to, str):
        name = "tensorboard" if hasattr(log_to, "add_scalar") else "_function"
    elif is_installed(log_to):
        name = log_to
    else:
        raise ImportError(f"{log_to} is not installed")
    tracker: Tracker = importlib.import_module(f"{__name__}.{name}").TRACKER(log_to, run_path)
    return tracker
