"""Remove and replace files, safely: no other module of this program does either (tests/contract/test_removals.py).

Every package may import this module, also the packages of the training process. A path is opened from its run, or from
`root`, without following a link (`inside.py`). Names are removed relative to the opened folder, so nothing can change
between the check and the removal.

A tree is removed only if this program made it. The proof is the folder's inode number in this process (`Made`), or a
name in our exact form with our marker file inside (`Marked`). A link in such a tree is removed as a name; a mount
stays.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from collector.format.schema.inside import RefusedError, opened_parent
from collector.format.schema.modes import find_limit, find_run_mode

SCRATCH_FILE = ".stepscope-scratch"
"""The file that names a scratch folder's process, so that others can see whether the folder is still in use."""
_DEEPEST = 100
"""Folders of ours are never nested this deep."""
_log = logging.getLogger("stepscope")


@dataclass(frozen=True)
class Made:
    """A folder just made by this program, known by device and inode. Another folder at the same path is not touched."""

    device: int
    number: int
    markers: ClassVar[tuple[str, ...]] = (SCRATCH_FILE,)

    def encode(self) -> str:
        """Return device and inode as one word, for the command line of another process."""
        return f"{self.device}:{self.number}"

    @classmethod
    def decode(cls, word: str) -> Made:
        device, number = map(int, word.split(":"))
        return cls(device, number)

    @classmethod
    def of(cls, found: os.stat_result) -> Made:
        return cls(found.st_dev, found.st_ino)

    def explain_other(self, name: str, folder: int) -> str:
        """Return why the opened folder is not the folder that was made, "" if it is. `folder` is its descriptor."""
        return "" if self.of(os.fstat(folder)) == self else "another folder stands in its place"


@dataclass(frozen=True)
class Marked:
    """A folder that this program made earlier. `form` matches its name; one of the files in `markers` is inside."""

    form: re.Pattern[str]
    markers: tuple[str, ...] = ()

    def explain_other(self, name: str, folder: int) -> str:
        """Return why the opened folder was not made by this program, "" if it was. `folder` is its descriptor."""
        if not self.form.fullmatch(name):
            return "its name is none that Stepscope gives"
        if self.markers and not any(_is_file(folder, marker) for marker in self.markers):
            return f"it holds no {' nor '.join(self.markers)}"
        return ""


@dataclass(frozen=True)
class Abandoned:
    """A scratch folder whose process has ended, or a folder of another host that is older than `after_s` seconds.

    `form` matches the whole name of the folder.
    """

    form: re.Pattern[str]
    after_s: float
    markers: ClassVar[tuple[str, ...]] = (SCRATCH_FILE,)

    def explain_other(self, name: str, folder: int) -> str:
        """Return why the opened folder is not an abandoned one, "" if it is. `folder` is its descriptor."""
        reason = Marked(self.form, self.markers).explain_other(name, folder)
        if reason:
            return reason
        try:
            with os.fdopen(os.open(SCRATCH_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)) as file:
                age_s = time.time() - os.fstat(file.fileno()).st_mtime
                owner = json.loads(file.read(4096))
            host, pid = str(owner["host"]), int(owner["pid"])
            is_here = host == _name_host()
        except (OSError, ValueError, TypeError, KeyError):
            return f"its {SCRATCH_FILE} is damaged"
        may_run = _is_running(pid) if is_here else age_s < self.after_s
        return f"process {pid} of {host} may use it" if may_run else ""


@dataclass(frozen=True)
class Scratch:
    path: Path
    made: Made

    def remove(self) -> None:
        """Remove the folder with all its content, if it still exists. Log what cannot be removed.

        If Ctrl-C or another signal raises an exception, the removal is completed first. A second signal raises at once.
        """
        try:
            self._remove()
        except (KeyboardInterrupt, SystemExit):
            self._remove()
            raise

    def _remove(self) -> None:
        with tolerated():
            remove_tree(self.path, self.made)


def make_folder(path: Path, root: Path | None = None, mode: int | None = None) -> Made:
    """Make a folder with its parent's access rights, and return the proof. FileExistsError if the name is taken."""
    with opened_parent(path, root) as parent:
        os.mkdir(path.name, find_limit(os.fstat(parent)) if mode is None else mode, dir_fd=parent)
        return Made.of(os.lstat(path.name, dir_fd=parent))


def make_run_folder(run_path: Path) -> Made:
    """Make the folder of a run with the access rights for its location (`modes.py`). Parent folders follow the umask."""
    run_path.parent.mkdir(parents=True, exist_ok=True)
    return make_folder(run_path, run_path.parent, find_run_mode(run_path))


def ensure_folder(path: Path, mode: int | None = None) -> None:
    """Make a folder and its parents if missing, each with its parent's access rights. OSError passes through."""
    if not path.parent.is_dir():
        ensure_folder(path.parent)
    with suppress(FileExistsError):
        make_folder(path, mode=mode)
    if not path.is_dir():
        raise FileExistsError(errno.EEXIST, "it is no folder", str(path))


def ensure_run_folder(run_path: Path, *inner: str) -> None:
    """Make the folder of a run and the subfolder `inner` in it (a name for each level), if they are missing."""
    with suppress(FileExistsError):
        make_run_folder(run_path)
    if inner:
        ensure_folder(run_path.joinpath(*inner), find_run_mode(run_path))


def make_scratch(parent: Path | None = None, prefix: str = "stepscope-", root: Path | None = None) -> Scratch:
    """Make a temporary folder that only this user may read, by default in the system's temporary directory.

    Its name is the prefix and 16 hexadecimal digits; a marker file names this process. OSError passes through.
    """
    if parent is None:
        from tempfile import gettempdir  # which imports much, and the training process needs none of it

        parent = Path(gettempdir())
    path = parent / f"{prefix}{os.urandom(8).hex()}"
    scratch = Scratch(path, make_folder(path, root, 0o700))
    try:
        with opened_parent(path / SCRATCH_FILE, root) as folder:
            marker = os.open(SCRATCH_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
        with open(marker, "w", encoding="utf-8") as file:
            json.dump({"host": _name_host(), "pid": os.getpid()}, file)
    except OSError:
        scratch.remove()
        raise
    return scratch


@contextmanager
def scratch_folder(prefix: str = "stepscope-", parent: Path | None = None) -> Iterator[Path]:
    """Make a scratch folder, as `make_scratch`, and remove it at the end of the block."""
    scratch = make_scratch(parent, prefix)
    try:
        yield scratch.path
    finally:
        scratch.remove()


@contextmanager
def tolerated() -> Iterator[None]:
    """Log failed and refused removals in the block, and go on. A file that is already gone is no failure."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:
        _log.warning("stepscope: %s", error)


def remove_file(path: Path, root: Path | None = None) -> None:
    """Remove a file name, if it exists; other hard links keep the content. OSError passes through."""
    with suppress(FileNotFoundError), opened_parent(path, root) as folder:
        os.unlink(path.name, dir_fd=folder)
        _log.debug("stepscope: removed %s", path)


def remove_empty(path: Path, root: Path | None = None) -> bool:
    """Remove a folder if it is empty; return whether it was removed. No error is raised."""
    with suppress(OSError), opened_parent(path, root) as folder:
        os.rmdir(path.name, dir_fd=folder)
        _log.debug("stepscope: removed the empty folder %s", path)
        return True
    return False


def remove_tree(path: Path, proof: Made | Marked | Abandoned, root: Path | None = None) -> None:
    """Remove a folder made by this program, with all its content.

    RefusedError names why this program may not remove the folder, or which content must stay; OSError names a failure.
    If only a part of the content must stay or fails, the rest is still removed. The marker files go last, so that a
    later call can finish the removal.
    """
    with opened_parent(path, root) as parent:
        if path.name not in _list_names(parent):  # a file system that ignores case would find another name, too
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        folder = _open_real(parent, path.name, path)
        try:
            reason = proof.explain_other(path.name, folder)
            if reason:
                raise RefusedError(f"{path} is left alone: {reason}")
            _empty(folder, path, last=proof.markers)
        finally:
            os.close(folder)
        os.rmdir(path.name, dir_fd=parent)
    _log.debug("stepscope: removed %s", path)


def replace(source: Path, target: Path, root: Path | None = None) -> None:
    """Rename a file or folder and replace the target; no link is followed. OSError passes through."""
    with opened_parent(source, root) as before, opened_parent(target, root) as after:
        try:
            os.replace(source.name, target.name, src_dir_fd=before, dst_dir_fd=after)
        except OSError as error:
            error.filename, error.filename2 = str(source), str(target)
            raise


def move(source: Path, target: Path, root: Path | None = None) -> None:
    """Rename a folder to an unused name; FileExistsError if the name is taken."""
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    replace(source, target, root)  # files that were added meanwhile stay: a folder replaces only an empty folder


def _list_names(folder: int) -> list[str]:
    # The parent may be open as a path only (O_PATH), which cannot be listed.
    listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.listdir(listed)
    finally:
        os.close(listed)


def _empty(folder: int, path: Path, depth: int = 0, last: tuple[str, ...] = ()) -> None:
    """Remove the content of an open folder, the names in `last` last. The first failure is raised at the end."""
    names = os.listdir(folder)
    for some in ([name for name in names if name not in last], [name for name in names if name in last]):
        problems = [_remove_entry(folder, name, path / name, depth) for name in some]
        problem = next(filter(None, problems), None)
        if problem is not None:
            raise problem


def _remove_entry(parent: int, name: str, path: Path, depth: int) -> OSError | None:
    try:
        if not stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
            os.unlink(name, dir_fd=parent)
            return None
        if depth >= _DEEPEST:
            raise RefusedError(f"{path} is left alone: more than {_DEEPEST} folders lie in each other")
        folder = _open_real(parent, name, path)
        try:
            _empty(folder, path, depth + 1)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        return None  # somebody else was faster
    except OSError as error:
        return error
    return None


def _open_real(parent: int, name: str, path: Path) -> int:
    try:
        folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise RefusedError(f"{path} is left alone: it is a link or a file, not a folder") from None
        error.filename = str(path)
        raise
    if find_mount(folder) != find_mount(parent):
        os.close(folder)
        raise RefusedError(f"{path} is left alone: it lies on another device")
    return folder


def find_mount(folder: int) -> tuple[int, int]:
    """Return device and (on Linux) number of an open folder's mount: `mount --bind` keeps the parent's device."""
    device, mount = os.fstat(folder).st_dev, 0
    with suppress(OSError), open(f"/proc/self/fdinfo/{folder}", encoding="ascii") as file:
        mount = next((int(line[7:]) for line in file if line.startswith("mnt_id:")), 0)
    return device, mount


def _name_host() -> str:
    """Return the name of the scope in which process ids are unique: the host, and on Linux the container."""
    with suppress(OSError):
        return f"{os.uname().nodename} {os.readlink('/proc/self/ns/pid')}"
    return os.uname().nodename


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _is_file(folder: int, name: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(name, dir_fd=folder).st_mode)
    except OSError:
        return False
