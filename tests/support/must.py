"""What a test takes to be there."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def must(value: T | None) -> T:
    """Return a value that is not None."""
    assert value is not None
    return value
