"""Remove and replace files: nothing else in this program does (tests/contract/test_removals.py).

It lies in this room because every other room may import it, the training process as well.
A path is walked from its run, or from the `root` that is given, without following a link (`inside.py`), and names are
removed relative to the folder that was opened: nothing comes between the check and the removal. A tree is removed only if
this program made it: this process holds the number of the folder (`Made`), or its name has the exact form of ours and our
marker lies inside (`Marked`). A link in such a tree is removed as a name; a mount stays.
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
"""Lies in a scratch folder and names its process, so that another one can tell when nobody uses the folder any more."""
_DEEPEST = 100
"""No folder of ours has so many folders in each other."""
_log = logging.getLogger("stepscope")


@dataclass(frozen=True)
class Made:
    """A folder that this program has just made, by its numbers: another one in its place is not touched."""

    device: int
    number: int
    markers: ClassVar[tuple[str, ...]] = (SCRATCH_FILE,)

    def encode(self) -> str:
        """Return it as a word that another process of ours can be started with."""
        return f"{self.device}:{self.number}"

    @classmethod
    def decode(cls, word: str) -> Made:
        device, number = map(int, word.split(":"))
        return cls(device, number)

    @classmethod
    def of(cls, found: os.stat_result) -> Made:
        return cls(found.st_dev, found.st_ino)

    def explain_other(self, name: str, folder: int) -> str:
        """Return why the folder that was opened is not this one, empty if it is."""
        return "" if self.of(os.fstat(folder)) == self else "it is not the folder that was made there"


@dataclass(frozen=True)
class Marked:
    """A folder that this program made earlier: `form` matches the whole of its name, one of `markers` is a file inside."""

    form: re.Pattern[str]
    markers: tuple[str, ...] = ()

    def explain_other(self, name: str, folder: int) -> str:
        """Return why the folder that was opened is none of ours, empty if it is."""
        if not self.form.fullmatch(name):
            return "its name is none that Stepscope gives"
        if self.markers and not any(_is_file(folder, marker) for marker in self.markers):
            return f"it holds no {' nor '.join(self.markers)}"
        return ""


@dataclass(frozen=True)
class Abandoned:
    """A scratch folder of a process that has ended; of one on another host, a folder that was made so long ago.

    `form` matches the whole of its name.
    """

    form: re.Pattern[str]
    after_s: float
    markers: ClassVar[tuple[str, ...]] = (SCRATCH_FILE,)

    def explain_other(self, name: str, folder: int) -> str:
        """Return why the folder that was opened is none of those, empty if it is."""
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
    """A scratch folder that this process made."""

    path: Path
    made: Made

    def remove(self) -> None:
        """Remove it with all that is in it, if it is still there. What cannot be removed is logged and stays.

        A Ctrl-C, or another signal that raises, is raised when the folder is gone; a second one at once.
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
    """Make a folder, as open as the one above it, and return what proves that it is ours.

    FileExistsError if something has the name.
    """
    with opened_parent(path, root) as parent:
        os.mkdir(path.name, find_limit(os.fstat(parent)) if mode is None else mode, dir_fd=parent)
        return Made.of(os.lstat(path.name, dir_fd=parent))


def make_run_folder(run_path: Path) -> Made:
    """Make the folder of a run, as open as its place says (`modes.py`). Those above it are made as the umask says."""
    run_path.parent.mkdir(parents=True, exist_ok=True)
    return make_folder(run_path, run_path.parent, find_run_mode(run_path))


def ensure_folder(path: Path, mode: int | None = None) -> None:
    """Make a folder that is missing, and those above it, each as open as the one above it. OSError passes through."""
    if not path.parent.is_dir():
        ensure_folder(path.parent)
    with suppress(FileExistsError):
        make_folder(path, mode=mode)
    if not path.is_dir():
        raise FileExistsError(errno.EEXIST, "it is no folder", str(path))


def ensure_run_folder(run_path: Path, *inner: str) -> None:
    """Make the folder of a run, or one right in it, if it is missing."""
    with suppress(FileExistsError):
        make_run_folder(run_path)
    if inner:
        ensure_folder(run_path.joinpath(*inner), find_run_mode(run_path))


def make_scratch(parent: Path | None = None, prefix: str = "stepscope-", root: Path | None = None) -> Scratch:
    """Make a folder that nobody else may read, by default in the system's temporary directory.

    Its name is the prefix and 16 digits of base 16. OSError passes through.
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
    """Give a scratch folder, as `make_scratch`, that is removed at the end of the block."""
    scratch = make_scratch(parent, prefix)
    try:
        yield scratch.path
    finally:
        scratch.remove()


@contextmanager
def tolerated() -> Iterator[None]:
    """Log what cannot be removed, or must not be, and go on. A file that is gone already is no trouble."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as error:
        _log.warning("stepscope: %s", error)


def remove_file(path: Path, root: Path | None = None) -> None:
    """Remove one name, if it is there; a file with another name (a hard link) keeps its content there. OSError passes through."""
    with suppress(FileNotFoundError), opened_parent(path, root) as folder:
        os.unlink(path.name, dir_fd=folder)
        _log.debug("stepscope: removed %s", path)


def remove_empty(path: Path, root: Path | None = None) -> bool:
    """Remove a folder in which nothing is, and return whether that was done."""
    with suppress(OSError), opened_parent(path, root) as folder:
        os.rmdir(path.name, dir_fd=folder)
        _log.debug("stepscope: removed the empty folder %s", path)
        return True
    return False


def remove_tree(path: Path, proof: Made | Marked | Abandoned, root: Path | None = None) -> None:
    """Remove a folder of ours with all that is in it.

    RefusedError says why it is none of ours, or what of it must stay; OSError what the system refuses. All else that lies
    in a folder of ours is removed then, but for its markers, which go last: what is left is removed another time.
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
    """Give a file or folder another name, in the place of what has it; no link is followed. OSError passes through."""
    with opened_parent(source, root) as before, opened_parent(target, root) as after:
        try:
            os.replace(source.name, target.name, src_dir_fd=before, dst_dir_fd=after)
        except OSError as error:
            error.filename, error.filename2 = str(source), str(target)
            raise


def move(source: Path, target: Path, root: Path | None = None) -> None:
    """Give a folder a name that nothing has; FileExistsError if something does."""
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    replace(source, target, root)  # what came there meanwhile stays: a folder takes the place of an empty one only


def _list_names(folder: int) -> list[str]:
    # The parent may be open as a path only (O_PATH), which cannot be listed.
    listed = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.listdir(listed)
    finally:
        os.close(listed)


def _empty(folder: int, path: Path, depth: int = 0, last: tuple[str, ...] = ()) -> None:
    """Remove all that is in an open folder, the names in `last` once all else is gone.

    The first thing that could not be removed is raised at the end.
    """
    names = os.listdir(folder)
    for some in ([name for name in names if name not in last], [name for name in names if name in last]):
        problems = [_remove_entry(folder, name, path / name, depth) for name in some]
        problem = next(filter(None, problems), None)
        if problem is not None:
            raise problem


def _remove_entry(parent: int, name: str, path: Path, depth: int) -> OSError | None:
    """Remove a file, a link, or a folder with all that is in it; return why it stays."""
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
    """Open a folder that is no link and no mount."""
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
    """Return what tells the mount that an open folder lies on: its device, and on Linux the number of the mount.

    A folder that is mounted a second time (`mount --bind`) has the device of the one above it.
    """
    device, mount = os.fstat(folder).st_dev, 0
    with suppress(OSError), open(f"/proc/self/fdinfo/{folder}", encoding="ascii") as file:
        mount = next((int(line[7:]) for line in file if line.startswith("mnt_id:")), 0)
    return device, mount


def _name_host() -> str:
    """Return what tells within which bounds the number of a process is its own: the host, and on Linux the container."""
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
