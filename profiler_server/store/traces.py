"""Names of trace files as an upload stores them, and names of the runs that are made of these files."""

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
    """Return a run name for a trace, made from its file name and safe as a folder name."""
    name = UNSAFE.sub("-", _SUFFIX.sub("", file_name)).strip("-.")[:_LONGEST] or "trace"
    return f"{name}-trace" if name in _NOT_LISTED else name


def find_free_name(base_dir: Path, name: str) -> str:
    """Return the name, with a number appended if the name is taken."""
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(free for free in itertools.chain([name], numbered) if not os.path.lexists(base_dir / free))


def clean_file_name(name: str) -> str:
    """Return a name in the form that an upload stores."""
    return UNSAFE.sub("-", name)[-150:].lstrip("-.")
