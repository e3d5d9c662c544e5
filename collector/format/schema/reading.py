"""Read the small files of a run: neither a pipe of that name may hold the reader, nor a huge file fill its memory."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from collector.format.schema.inside import open_inside

LIMIT_BYTES = 16 << 20


def read_small_text(path: Path) -> str:
    """Read a regular UTF-8 file of at most 16 MiB. OSError or UnicodeDecodeError says why it cannot be read."""
    return read_small_file(path).decode("utf-8")


def read_small_file(path: Path) -> bytes:
    """Read a regular file of at most 16 MiB. OSError says why it cannot be read."""
    number = open_inside(path, os.O_RDONLY | os.O_NONBLOCK)  # without O_NONBLOCK a pipe waits for a writer
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError(f"{path} is no regular file; remove it")
        raw = file.read(LIMIT_BYTES + 1)
    if len(raw) > LIMIT_BYTES:
        raise OSError(f"{path} is larger than {LIMIT_BYTES >> 20} MiB; remove it")
    return raw
