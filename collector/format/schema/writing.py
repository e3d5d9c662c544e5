"""Write the small files of a run so that whoever reads meanwhile sees the old or the new one."""

from __future__ import annotations

import os
from pathlib import Path


def replace_text(path: Path, text: str, durable: bool = False) -> None:
    """Write a UTF-8 file, whole or not at all. OSError passes through, and what was there stays.

    `durable`: it is on the disk before it takes the place of the other.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
