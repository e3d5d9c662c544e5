"""Values out of files that anybody may have written: numbers and texts within bounds, or what stands for them."""

from __future__ import annotations

from typing import Any

MOST_TEXT = 300


def read_number(value: Any, absent: int) -> int:
    """Return a number of up to 62 bits, `absent` for anything else."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1 << 62
    return int(value) if is_number else absent


def read_text(value: Any) -> str:
    """Return the beginning of a text, or of a number of up to 62 bits as text; "" for anything else.

    Python refuses to spell numbers of thousands of digits, and spells lists that share their items without a bound.
    """
    is_number = isinstance(value, int) and abs(value) < 1 << 62
    return str(value)[:MOST_TEXT] if isinstance(value, str) or is_number else ""
