"""Make a git worktree for the base, outside the user's checkout. It is removed even if this process is killed.

A separate process removes it (`main` below) when its own standard input ends. The kernel closes that input even if the
parent process is killed.
"""

from __future__ import annotations

import os
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

_LOCAL = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_NAMESPACE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
)
"""Variables that git sets for hooks: they would make git use the user's index instead of our worktree's."""
_SETTINGS = ("-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false", "-c", "core.fsmonitor=false")
_PATIENCE_S = 30.0
# Not by `-m`: Python warns of a module that its package has imported, and a warning may be an error where the user says so.
_GUARD = "import sys; from collector.launch.pairs.worktree import main; sys.exit(main(*sys.argv[1:]))"


def ask_git(folder: Path, *words: str) -> str | None:
    """Run git with these words in a folder and return its output; None if git fails, is too slow, or not installed."""
    try:
        done = _run(folder, words, _PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "surrogateescape").strip() if done.returncode == 0 else None


def add_worktree(root: Path, place: Path, commit: str) -> None:
    """Check out a commit to a folder outside the user's checkout. Raises UsageError with git's reason."""
    done = _run(root, ("worktree", "add", "--quiet", "--detach", str(place), commit), None)
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["git gives no reason"]
        raise UsageError(f"{commit[:12]} cannot be checked out: {lines[-1]}")


def remove_worktree(root: Path, place: Path) -> None:
    """Remove a worktree with git. Git's records of a half-added worktree go too; other worktrees stay.

    Files that git leaves behind are for the caller to remove, with the scratch folder around them.
    """
    _run(root, ("worktree", "remove", "--force", "--force", str(place)), None)
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


def _run(folder: Path, words: tuple[str, ...], timeout_s: float | None) -> subprocess.CompletedProcess[bytes]:
    environment = {name: value for name, value in os.environ.items() if name not in _LOCAL}
    return subprocess.run(
        ["git", *_SETTINGS, *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=timeout_s,
        # Without optional locks a question does not refresh the user's index.
        env={**environment, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
        start_new_session=True,  # a Ctrl-C reaches this process, which then has git's half work removed
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
