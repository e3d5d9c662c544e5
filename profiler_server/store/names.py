"""Names of runs that are made of trace files."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

from collector.format.scan import SKIPPED_NAMES
from collector.format.schema.layout import PROFILER_FOLDER
from collector.traces.reading import SUFFIXES

UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_SUFFIX = re.compile(rf"(\.pt)?(\.trace)?({'|'.join(map(re.escape, SUFFIXES))})$", re.IGNORECASE)
_LONGEST = 100
_NOT_LISTED = SKIPPED_NAMES | {PROFILER_FOLDER}
"""Folders in which the list looks for no run."""


def name_run(file_name: str) -> str:
    """Return a name for the run of a trace, from its file's name; safe as the name of a folder."""
    name = UNSAFE.sub("-", _SUFFIX.sub("", file_name)).strip("-.")[:_LONGEST] or "trace"
    return f"{name}-trace" if name in _NOT_LISTED else name


def find_free_name(base_dir: Path, name: str) -> str:
    """Return the name, with a number behind it if something of that name is there."""
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return next(free for free in itertools.chain([name], numbered) if not os.path.lexists(base_dir / free))
