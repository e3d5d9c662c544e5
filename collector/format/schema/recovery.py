"""The command that mends a damaged run, spelled out for messages."""

from __future__ import annotations

import shlex
from pathlib import Path

from collector.format.schema.layout import PROFILER_FOLDER

BROKEN_SUFFIX = ".broken"
"""What recovery appends to the name of a damaged file that it sets aside."""


def spell_recovery(file: Path) -> str:
    """Return the command for the run that a file belongs to, ready to be pasted into a shell."""
    folders = [folder for folder in file.parents if folder.name == PROFILER_FOLDER]
    return f"profiler-server recover {shlex.quote(str(folders[0].parent if folders else file.parent))}"
