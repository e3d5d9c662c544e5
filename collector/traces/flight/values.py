"""Values out of files that anybody may have written: numbers and texts within bounds, or what stands for them."""

from __future__ import annotations

from typing import Any

MOST_TEXT = 300


def read_number(value: Any, absent: int) -> int:
    """Return a number of up to 62 bits, `absent` for anything else."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1 << 62
    return int(value) if is_number else absent


def read_text(value: Any) -> str:
    """Return the beginning of a text, or of a number as text; "" for anything else."""
    return str(value)[:MOST_TEXT] if isinstance(value, (str, int)) else ""
