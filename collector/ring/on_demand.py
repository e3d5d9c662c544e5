"""The folder where libkineto looks for its daemon: made by profiler-run before torch is imported, removed when all is over.

May import the standard library only, and of it what starts fast: a script that never imports torch must not wait.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

VARIABLE = "STEPSCOPE_ON_DEMAND"
"""Names the folder to the recording that begins next, and to no other."""
SOCKET = "dynolog"
"""The name that libkineto sends to."""
CONFIG_FILE = "kineto.conf"
_PREFIX = "stepscope-od-"
_OURS = (SOCKET, CONFIG_FILE, "dynoconfigclient*", "window*.json")


def make_folder() -> Path:
    """Make a folder that only this user may enter. OSError passes through.

    Not in the run's folder: its path may be longer than the name of a socket can be. What processes that were killed
    have left is removed.
    """
    for left in _find_temporary().glob(f"{_PREFIX}*"):
        if is_own_folder(left) and not _is_running(left):
            remove_folder(left)
    folder = _find_temporary() / f"{_PREFIX}{os.getpid()}-{time.time_ns()}"
    folder.mkdir(mode=0o700)
    return folder


def is_own_folder(folder: Path) -> bool:
    """Say whether a folder is such a one. Its name comes from a file of the run, so it is checked."""
    if folder.parent != _find_temporary() or not folder.name.startswith(_PREFIX) or folder.is_symlink():
        return False
    try:
        return folder.is_dir() and folder.stat().st_uid == os.getuid()
    except OSError:
        return False


def remove_folder(folder: Path) -> None:
    """Remove what lies in the folder by its name, then the folder; anything else in it stays, and so does the folder."""
    with contextlib.suppress(OSError):
        for pattern in _OURS:
            for path in folder.glob(pattern):
                path.unlink(missing_ok=True)
        folder.rmdir()


def _find_temporary() -> Path:
    return Path(os.environ.get("TMPDIR") or "/tmp").absolute()


def _is_running(folder: Path) -> bool:
    """Say whether the process that made a folder is there; its number stands in the name."""
    number = folder.name.removeprefix(_PREFIX).partition("-")[0]
    try:
        os.kill(int(number), 0)
    except (ValueError, ProcessLookupError):
        return False
    except OSError:  # somebody else's now
        return True
    return True
