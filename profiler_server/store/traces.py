"""Names of uploaded trace files as they are stored, and names of the runs that are made from these files."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

from collector.format.finding import SKIPPED_NAMES
from collector.format.schema.layout import PROFILER_FOLDER
from collector.traces.reading import SUFFIXES

UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_SUFFIX = re.compile(rf"(\.pt)?(\.trace)?({'|'.join(map(re.escape, SUFFIXES))})$", re.IGNORECASE)
_LONGEST = 100
_NOT_LISTED = SKIPPED_NAMES | {PROFILER_FOLDER}
"""Folders in which the list searches for no run."""


def name_run(file_name: str) -> str:
    """Return a name for the run made from a trace: the file name without its endings, safe as a folder name."""
    name = UNSAFE.sub("-", _SUFFIX.sub("", file_name)).strip("-.")[:_LONGEST] or "trace"
    return f"{name}-trace" if name in _NOT_LISTED else name


def find_free_name(base_dir: Path, name: str) -> str:
    """Return `name`, with a number appended if the base directory already has a file or folder of this name."""
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(free for free in itertools.chain([name], numbered) if not os.path.lexists(base_dir / free))


def clean_file_name(name: str) -> str:
    """Return the name under which an uploaded file is stored: safe characters only, and the last 150 of them."""
    return UNSAFE.sub("-", name)[-150:].lstrip("-.")
