"""Read small files of a run, and the values in them, within limits: anybody may have written the files.

A pipe with the expected name must not block the reader, and a huge file must not fill its memory.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from collector.format.schema.inside import open_inside

LIMIT_BYTES = 16 << 20
MOST_TEXT = 300


def read_small_text(path: Path) -> str:
    """Read a regular UTF-8 file of at most 16 MiB. Raises OSError or UnicodeDecodeError."""
    return read_small_file(path).decode("utf-8")


def read_small_file(path: Path) -> bytes:
    number = open_inside(path, os.O_RDONLY | os.O_NONBLOCK)  # without O_NONBLOCK a pipe waits for a writer
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError(f"{path} is no regular file; remove it")
        raw = file.read(LIMIT_BYTES + 1)
    if len(raw) > LIMIT_BYTES:
        raise OSError(f"{path} is larger than {LIMIT_BYTES >> 20} MiB; remove it")
    return raw


def read_count(value: Any) -> int | None:
    """Return a whole number >= 0 of at most 62 bits, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else None


def read_number(value: Any, absent: int) -> int:
    """Return a number of at most 62 bits as an int, `absent` for anything else."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1 << 62
    return int(value) if is_number else absent


def read_text(value: Any) -> str:
    """Return the beginning of a text, or a number of at most 62 bits as text; "" for anything else.

    Other values are not converted: Python refuses to print numbers of thousands of digits, and the text of a list that
    shares items has no bound.
    """
    is_number = isinstance(value, int) and abs(value) < 1 << 62
    return str(value)[:MOST_TEXT] if isinstance(value, str) or is_number else ""
