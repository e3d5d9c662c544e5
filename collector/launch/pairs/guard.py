"""A folder for a worktree that is removed whatever happens to the process that uses it.

A process of its own removes it, `tidying.py`, when its standard input ends: the kernel sees to that when the process that
started it dies, however it dies.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collector.expendable import build_environment
from collector.format.schema.removal import make_scratch


@contextmanager
def guard_worktree(root: Path, name: str) -> Iterator[Path]:
    """Yield a path of that name at which a worktree of `root` may be made; it is gone when the block ends."""
    scratch = make_scratch()
    place = scratch.path / name
    guard = subprocess.Popen(
        [sys.executable, "-m", "collector.launch.pairs.tidying", str(root), str(place), scratch.made.encode()],
        stdin=subprocess.PIPE,
        cwd="/",
        env=build_environment(),
        start_new_session=True,  # a Ctrl-C must not end it before it has removed the worktree
    )
    try:
        yield place
    finally:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        guard.communicate()
        signal.signal(signal.SIGINT, before)
