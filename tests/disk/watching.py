"""Build what watches a process's disk, and run Python below it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_SOURCE = Path(__file__).with_name("watch.c")
COMPILER = shutil.which("cc")


def build_watch(folder: Path) -> Path:
    """Compile the library into a folder."""
    library = folder / "watch.so"
    assert COMPILER is not None
    command = [COMPILER, "-shared", "-fPIC", "-O1", "-w", "-o", str(library), str(_SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


def run_watched(library: Path, program: str, *arguments: Path | str) -> str:
    """Run a program with the library loaded before all others, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", program, *map(str, arguments)],
        env={**os.environ, "LD_PRELOAD": str(library)},
        cwd=_SOURCE.parents[2],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert not done.returncode, done.stderr
    return done.stdout
