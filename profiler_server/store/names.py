"""Names of runs that are made of trace files."""

from __future__ import annotations

import re
from pathlib import Path

UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_SUFFIX = re.compile(r"(\.pt)?(\.trace)?\.json(\.gz)?$", re.IGNORECASE)
_LONGEST = 100


def name_run(file_name: str) -> str:
    """Return a name for the run of a trace, from its file's name; safe as the name of a folder."""
    return UNSAFE.sub("-", _SUFFIX.sub("", file_name)).strip("-.")[:_LONGEST] or "trace"


def find_free_name(base_dir: Path, name: str) -> str:
    """Return the name, with a number behind it if something of that name is there."""
    taken = {entry.name for entry in base_dir.iterdir()} if base_dir.is_dir() else set()
    if name not in taken:
        return name
    return next(candidate for number in range(2, len(taken) + 3) if (candidate := f"{name}-{number}") not in taken)
