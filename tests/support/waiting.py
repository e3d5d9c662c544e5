"""Wait for what another thread or process does, however busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(found: Callable[[], T | None], told: Callable[[], object] | None = None, limit_s: float = 120.0) -> T:
    """Return what is found as soon as it is true. AssertionError with what is told then, where it never is."""
    end_s = time.monotonic() + limit_s
    while not (value := found()):
        assert time.monotonic() < end_s, told() if told is not None else "it never came"
        time.sleep(0.02)
    return value
