"""Choose the access rights of written files: a run's folder is private to its user, unless its location is shared.

A location is shared with `PROFILER_SHARED=1`, or if a group other than the user's own may write there; then the umask
decides the modes. The choice is made once, when the run's folder is made. Everything inside gets its folder's access
rights. The umask itself stays unchanged, because it applies to all files of the training.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

VARIABLE = "PROFILER_SHARED"
_OWN = 0o700


def find_run_mode(run_path: Path) -> int:
    """Return the mode for the folder of a run at this path. The umask is not yet applied to the mode."""
    return 0o777 if _is_shared(run_path) else _OWN


def find_limit(folder: os.stat_result) -> int:
    """Return the most access rights for files in a folder, as a mask; in another user's, the owner decides: 0o777."""
    return _OWN | stat.S_IMODE(folder.st_mode) & 0o077 if folder.st_uid == _find_user() else 0o777


def open_beside(path: str, flags: int) -> int:
    """Open a file beside runs that describes them, as private as a run there. This is an `opener` for `open`."""
    return os.open(path, flags | os.O_CLOEXEC, 0o666 if _is_shared(Path(path)) else 0o600)


def restrict(path: Path) -> None:
    """Limit a file or folder that other code wrote to the access rights of its folder. OSError passes through."""
    found = os.lstat(path)
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISLNK(found.st_mode) and mode & ~(limit := find_limit(os.stat(path.parent))) & 0o777:
        path.chmod(mode & limit)


def align_all(folder: Path, like: Path) -> None:
    """Give a folder that we have just made, with all its content, the access rights of `like`. OSError passes through."""
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
    """Return a sentence on an unreadable folder: which folder is closed, who owns it, and how the owner can share it."""
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
    """Return whether a group other than the user's own may write in a folder. /tmp, open to all, does not count."""
    return bool(folder.st_mode & stat.S_IWGRP) and not folder.st_mode & stat.S_ISVTX and folder.st_gid != _find_user()


def _find_user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0
