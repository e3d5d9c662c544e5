"""Who may read what is written: the folder of a run is its user's alone, unless the place is shared.

Shared is what `PROFILER_SHARED=1` asks for, and a place in which another group than the user's own may write: there modes
are what the umask says. This is decided once, when the folder of a run is made. What is made in a folder of ours is as
open as that folder. The umask stays as it is: it is that of the training, and of all the files that it writes.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

VARIABLE = "PROFILER_SHARED"
_OWN = 0o700


def find_run_mode(run_path: Path) -> int:
    """Return the mode that the folder of a run in that place is made with; the umask comes on top."""
    return 0o777 if _is_shared(run_path) else _OWN


def find_limit(folder: os.stat_result) -> int:
    """Return the rights that something in a folder may give. In another user's folder it is that user who protects it."""
    return _OWN | stat.S_IMODE(folder.st_mode) & 0o077 if folder.st_uid == _find_user() else 0o777


def open_beside(path: str, flags: int) -> int:
    """Open a file that lies beside runs and tells of them: private like a run in its place. An `opener` of `open`."""
    return os.open(path, flags | os.O_CLOEXEC, 0o666 if _is_shared(Path(path)) else 0o600)


def restrict(path: Path) -> None:
    """Make a file or folder that others than us have written no more open than its folder. OSError passes through."""
    found = os.lstat(path)
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISLNK(found.st_mode) and mode & ~(limit := find_limit(os.stat(path.parent))) & 0o777:
        path.chmod(mode & limit)


def align_all(folder: Path, like: Path) -> None:
    """Make a folder that we have just made, and all that is below it, as open as one of ours. OSError passes through."""
    found = os.stat(like)
    if found.st_uid != _find_user():
        return
    _align(str(folder), found.st_mode)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            _align(os.path.join(parent, name), found.st_mode)


def _align(path: str, mode: int) -> None:
    before = os.lstat(path).st_mode
    if not stat.S_ISLNK(before):
        most = 0o777 if stat.S_ISDIR(before) else 0o666
        os.chmod(path, mode & most | stat.S_IMODE(before) & ~0o777)


def spell_closed(folder: Path) -> str:
    """Return whose a folder is that may not be read, or the one above it that keeps it closed, and what its owner can do."""
    closed = next((above for above in reversed(folder.parents) if not os.access(above, os.X_OK)), folder)
    try:
        found = os.stat(closed)
    except OSError as error:
        return f"{closed} cannot be read: {error.strerror or error}"
    return (
        f"{closed} cannot be read. It belongs to {_name_user(found.st_uid)}, mode {stat.S_IMODE(found.st_mode):04o}: "
        f"chmod -R go+rX shares it, and {VARIABLE}=1 where runs are recorded shares later ones"
    )


def _name_user(number: int) -> str:
    try:
        import pwd  # not everywhere

        return pwd.getpwuid(number).pw_name
    except (ImportError, KeyError):
        return f"user {number}"


def _is_shared(run_path: Path) -> bool:
    if os.environ.get(VARIABLE, "0") not in ("", "0"):
        return True
    return any(folder.is_dir() and _takes_others(os.stat(folder)) for folder in (run_path, run_path.parent))


def _takes_others(folder: os.stat_result) -> bool:
    """Say whether a group may write in a folder that is not the user's own; /tmp, where all may, is shared by none."""
    return bool(folder.st_mode & stat.S_IWGRP) and not folder.st_mode & stat.S_ISVTX and folder.st_gid != _find_user()


def _find_user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0
