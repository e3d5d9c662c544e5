"""Questions to git, of the user's checkout: nothing of it is changed, and no hook of it is run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_LOCAL = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_NAMESPACE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
)
"""Variables that git sets for hooks: they would make git use the user's index instead of our worktree's."""
_SETTINGS = ("-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false", "-c", "core.fsmonitor=false")
_PATIENCE_S = 30.0


def ask_git(folder: Path, *words: str) -> str | None:
    """Run git with these words in a folder and return its output; None if git fails, is too slow, or not installed."""
    try:
        done = run_git(folder, words, _PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "surrogateescape").strip() if done.returncode == 0 else None


def run_git(folder: Path, words: tuple[str, ...], timeout_s: float | None) -> subprocess.CompletedProcess[bytes]:
    """Run git with these words in a folder. Raises OSError without git, TimeoutExpired if it takes too long."""
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
