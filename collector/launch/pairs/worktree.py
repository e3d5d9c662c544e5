"""Make a git worktree for the base, outside the user's checkout. It is removed even if this process is killed.

A separate process removes it (`main` below) when its own standard input ends. The kernel closes that input even if the
parent process is killed.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collector.expendable import build_environment
from collector.format.schema.errors import UsageError
from collector.format.schema.removal import Made, Marked, make_scratch, remove_tree, tolerated
from collector.git import ask_git, run_git

# Not by `-m`: Python warns of a module that its package has imported, and a warning may be an error where the user says so.
_GUARD = "import sys; from collector.launch.pairs.worktree import main; sys.exit(main(*sys.argv[1:]))"


def add_worktree(root: Path, place: Path, commit: str) -> None:
    """Check out a commit to a folder outside the user's checkout. Raises UsageError with git's reason."""
    done = run_git(root, ("worktree", "add", "--quiet", "--detach", str(place), commit), None)
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["git gives no reason"]
        raise UsageError(f"{commit[:12]} cannot be checked out: {lines[-1]}")


def remove_worktree(root: Path, place: Path) -> None:
    """Remove a worktree with git. Git's records of a half-added worktree go too; other worktrees stay.

    Files that git leaves behind are for the caller to remove, with the scratch folder around them.
    """
    run_git(root, ("worktree", "remove", "--force", "--force", str(place)), None)
    common = ask_git(root, "rev-parse", "--git-common-dir")
    if common is None:
        return
    for entry in (root / common / "worktrees").glob("*/gitdir"):
        try:
            is_ours = entry.read_text(encoding="utf-8", errors="surrogateescape").strip() == str(place / ".git")
        except OSError:
            continue
        if is_ours:
            with tolerated():
                remove_tree(
                    entry.parent, Marked(re.compile(re.escape(entry.parent.name)), (entry.name,)), root / common
                )


@contextmanager
def guard_worktree(root: Path, name: str) -> Iterator[Path]:
    """Yield a path, ending in `name`, for a worktree of `root`. When the block ends, the worktree at this path is
    removed.
    """
    scratch = make_scratch()
    place = scratch.path / name
    guard = subprocess.Popen(
        [sys.executable, "-c", _GUARD, str(root), str(place), scratch.made.encode()],
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


def main(root: str, place: str, made: str) -> int:
    """Wait for the end of standard input, then remove the worktree and the scratch folder around it, given by `made`."""
    sys.stdin.read()
    with tolerated():
        remove_worktree(Path(root), Path(place))
    with tolerated():
        remove_tree(Path(place).parent, Made.decode(made))
    return 0
