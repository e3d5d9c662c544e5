"""Remove a worktree when whoever uses it has ended: `python -m collector.launch.pairs.tidying ROOT PLACE MADE`."""

from __future__ import annotations

import sys
from pathlib import Path

from collector.format.schema.removal import Made, remove_tree, tolerated
from collector.launch.pairs.git import remove_worktree


def main(root: Path, place: Path, made: Made) -> int:
    """Wait for the end of standard input, then remove the worktree and the scratch folder around it, which was `made`."""
    sys.stdin.read()
    with tolerated():
        remove_worktree(root, place)
    with tolerated():
        remove_tree(place.parent, made)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), Made.decode(sys.argv[3])))
