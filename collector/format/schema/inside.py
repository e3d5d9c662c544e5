"""Open the files of a run without following a link inside it.

Each folder between the run and a file is opened relative to its parent, so nobody can swap in a link between the check
and the use. The path to the run itself may contain links: its user made them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from collector.format.schema.errors import LinkedRunError
from collector.format.schema.layout import find_run_path, profiler_path
from collector.format.schema.modes import find_limit

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""Flags to open a folder on the way to a file, even if the folder may not be listed."""
_IS_LINK = (errno.ELOOP, errno.EMLINK, errno.ENOTDIR)
"""The errors of various systems when a link is not followed."""


class RefusedError(OSError):
    """A path that this program refuses to touch. The message has the reason."""


@contextmanager
def opened_parent(path: Path, root: Path | None = None) -> Iterator[int]:
    """Yield a descriptor of a path's parent folder, without following links below `root` (default: the path's run).

    For a path outside any run, the default is its folder. RefusedError names the link; OSError names other failures.
    """
    root = (find_run_path(path) or path.parent) if root is None else root
    descriptor = os.open(root, _FOLDER)
    try:
        for part in _list_parts(path.parent, root):
            outer, descriptor = descriptor, _open_below(descriptor, part, _FOLDER, path)
            os.close(outer)
        yield descriptor
    finally:
        os.close(descriptor)


def open_inside(name: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a file like `os.open`; also for `open(…, opener=open_inside)`. A new file gets its folder's access rights.

    In a run, links inside the run are not followed: RefusedError names the link.
    """
    path = Path(name)
    if find_run_path(path) is None:
        limit = find_limit(os.stat(path.parent)) if flags & os.O_CREAT else 0o777
        return os.open(path, flags | os.O_CLOEXEC, mode & limit)
    with opened_parent(path) as folder:
        return _open_below(folder, path.name, flags | os.O_CLOEXEC, path, mode & find_limit(os.fstat(folder)))


def is_plain_file(path: Path) -> bool:
    """Return whether the path is a file and no link."""
    return _has_kind(path, stat.S_ISREG)


def is_plain_folder(path: Path) -> bool:
    """Return whether the path is a folder and no link."""
    return _has_kind(path, stat.S_ISDIR)


def find_link(run_path: Path) -> Path | None:
    """Return a link inside a run, None if there is none. Folders that cannot be listed are skipped."""
    waiting = [profiler_path(run_path)]
    link = waiting[0] if waiting[0].is_symlink() else None
    while waiting and link is None:
        link, inner = _list_inner(waiting.pop())
        waiting += inner
    return link


def _list_inner(folder: Path) -> tuple[Path | None, list[Path]]:
    inner = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                return Path(entry.path), []
            if entry.is_dir(follow_symlinks=False):
                inner.append(Path(entry.path))
    return None, inner


def refuse_links(run_path: Path) -> None:
    """Raise LinkedRunError if a link lies inside a run."""
    link = find_link(run_path)
    if link is not None:
        raise LinkedRunError(
            f"{link} is a link, and no link inside a run is followed; replace it by a copy of what it leads to"
        )


def _has_kind(path: Path, is_kind: Callable[[int], bool]) -> bool:
    try:
        return is_kind(os.lstat(path).st_mode)
    except OSError:
        return False


def _list_parts(folder: Path, root: Path) -> tuple[str, ...]:
    parts = folder.relative_to(root).parts
    if ".." in parts:
        raise RefusedError(f"{folder} leads out of {root}")
    return parts


def _open_below(folder: int, name: str, flags: int, path: Path, mode: int = 0o666) -> int:
    try:
        return os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=folder)
    except OSError as error:
        if error.errno in _IS_LINK and _is_link(folder, name):
            raise RefusedError(f"{path} is reached by the link {name}, and no link inside a run is followed") from None
        error.filename = str(path)
        raise


def _is_link(folder: int, name: str) -> bool:
    try:
        os.readlink(name, dir_fd=folder)
    except OSError:
        return False
    return True
