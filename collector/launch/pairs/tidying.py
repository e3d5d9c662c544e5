"""Remove a worktree when whoever uses it has ended: `python -m collector.launch.pairs.tidying ROOT PLACE`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from collector.launch.pairs.git import remove_worktree


def main(root: Path, place: Path) -> int:
    """Wait for the end of standard input, then remove the worktree and the temporary folder around it."""
    sys.stdin.read()
    remove_worktree(root, place)
    shutil.rmtree(place.parent, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:3])))
