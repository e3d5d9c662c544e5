"""Redirect all writes of a trial to a scratch folder: a trial must leave nothing behind and overwrite nothing.

Python's functions that write, move or remove files get paths in the scratch folder. Files written there are also read
from there. Other code that writes, such as a library in C, is refused by the system (Landlock, Linux 5.13 and later).
Outside of the scratch folder the process may only read.
"""

from __future__ import annotations

import builtins
import ctypes
import functools
import io
import os
import shutil
import stat
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_VERSION = 1
_NO_NEW_PRIVILEGES = 38
_WRITES = (1 << 1) | sum(1 << bit for bit in range(4, 13))
"""Access rights of Landlock's first version: write a file; remove, make and link files and folders."""
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_WRITING = frozenset("wax+")
_MOST_BROUGHT = 1 << 28
_DEVICES = ("/dev", "/proc", "/sys")


class Redirect:
    """A redirection of writes to a folder below `scratch`. Writes in the folders `free` are not redirected."""

    def __init__(self, scratch: Path, free: tuple[Path, ...]) -> None:
        self._files = scratch / "files"
        self._free = tuple(str(path.resolve()) for path in (scratch, *free))
        self._files.mkdir(exist_ok=True)  # another rank may have made it already
        self._removed: set[str] = set()
        """The user's files and folders that the script removed. They stay on disk, but the script no longer sees
        them."""
        self._is_inside = False

    def install(self) -> None:
        """Patch this process: opening, writing, listing, moving and removing files take place at other paths."""
        opened, low_level = io.open, os.open

        @functools.wraps(opened)
        def open_file(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            writes = bool(_WRITING & set(mode))
            return opened(self.place(file, writes, brings=not {"w", "x"} & set(mode)), mode, *args, **kwargs)

        @functools.wraps(low_level)
        def open_descriptor(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if kwargs.get("dir_fd") is not None:
                return low_level(path, flags, *args, **kwargs)
            writes = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
            return low_level(self.place(path, writes, brings=not flags & os.O_TRUNC), flags, *args, **kwargs)

        builtins.open = io.open = open_file
        os.open = open_descriptor
        shutil._use_fd_functions = False  # type: ignore[attr-defined]  # else it removes by names in an open folder
        for name in ("mkdir", "truncate", "chmod", "utime", "mkfifo"):
            self.lead(os, name, 0, writes=True)
        for name in ("stat", "lstat", "access", "readlink", "statvfs"):
            self.lead(os, name, 0, writes=False)
        for name in ("remove", "unlink", "rmdir"):
            self._lead_removal(name)
        for name in ("rename", "replace", "link", "symlink"):
            self._lead_pair(name)
        self._lead_lists()
        self._lead_moves()

    def lead(self, module: Any, name: str, position: int, writes: bool, brings: bool = False) -> None:
        """Redirect the path that a function of `module` takes at `position`. `writes` means that the function writes to
        the path, `brings` that it changes an existing file.
        """
        original = getattr(module, name)

        @functools.wraps(original)
        def led(*args: Any, **kwargs: Any) -> Any:
            is_path = len(args) > position and isinstance(args[position], (str, bytes, os.PathLike))
            if is_path and kwargs.get("dir_fd") is None:
                args = (*args[:position], self.place(args[position], writes, brings), *args[position + 1 :])
            return original(*args, **kwargs)

        setattr(module, name, led)

    def _lead_removal(self, name: str) -> None:
        original: Callable[..., Any] = getattr(os, name)

        @functools.wraps(original)
        def led(path: Any, *args: Any, **kwargs: Any) -> Any:
            real = self._find_real(path) if kwargs.get("dir_fd") is None else None
            if real is None:
                return original(path, *args, **kwargs)
            is_users = not self._is_removed(real) and _exists(real)
            self._removed.add(real)
            there = f"{self._files}{real}"
            if _exists(there) or not is_users:
                original(there)

        setattr(os, name, led)

    def _lead_pair(self, name: str) -> None:
        original: Callable[..., Any] = getattr(os, name)
        moves = name in ("rename", "replace")

        @functools.wraps(original)
        def led(source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("src_dir_fd") is not None or kwargs.get("dir_fd") is not None:
                return original(source, target, *args, **kwargs)
            placed = self.place(source, moves, brings=moves) if name != "symlink" else source
            original(placed, self.place(target, True), *args, **kwargs)
            real = self._find_real(source)
            if moves and real is not None:
                self._removed.add(real)

        setattr(os, name, led)

    def _lead_lists(self) -> None:
        """Make lists of a folder's entries show both the user's files and the files that the trial wrote there."""
        listdir, scandir = os.listdir, os.scandir

        @functools.wraps(scandir)
        def scan(path: Any = ".") -> Any:
            real = self._find_real(path)
            there = f"{self._files}{real}"
            if real is None or not (_is_folder(there) or self._removed):
                return scandir(path)
            found: dict[str, os.DirEntry[str]] = {}
            for place in [there] if self._is_removed(real) or not _is_folder(real) else [real, there]:
                if place == real or _is_folder(place):
                    with scandir(place) as entries:
                        found |= {each.name: each for each in entries if not self._is_removed(each.path)}
            return _Entries(list(found.values()))

        @functools.wraps(listdir)
        def names(path: Any = ".") -> Any:
            return listdir(path) if isinstance(path, (int, bytes)) else [entry.name for entry in scan(path)]

        os.listdir, os.scandir = names, scan

    def _lead_moves(self) -> None:
        """Let the script change into a folder that only the trial has; `getcwd` then returns the user's path."""
        chdir, getcwd = os.chdir, os.getcwd

        @functools.wraps(chdir)
        def change(path: Any) -> None:
            placed = self.place(path, writes=False)
            chdir(placed)
            self._is_inside = getcwd().startswith(str(self._files))

        os.chdir = change
        os.getcwd = functools.wraps(getcwd)(lambda: getcwd().removeprefix(str(self._files)))

    def _find_real(self, path: Any) -> str | None:
        """Return the absolute path. Return None if `path` is no path, or lies in a folder where writes are not
        redirected.
        """
        if isinstance(path, int):
            return None
        try:
            real = os.path.abspath(os.fsdecode(path))
        except (TypeError, ValueError):
            return None
        if real.startswith(_DEVICES) or any(real == free or real.startswith(free + "/") for free in self._free):
            return None
        return real

    def _is_removed(self, real: str) -> bool:
        return bool(self._removed) and any(str(each) in self._removed for each in (real, *PurePath(real).parents))

    def place(self, path: Any, writes: bool, brings: bool = False) -> Any:
        """Return the path to use: `path` itself, or its counterpart below the scratch folder. `writes` means that the
        caller writes to the path. With `brings` it changes an existing file, which is first copied there.

        A path that is no path is returned unchanged.
        """
        real = self._find_real(path)
        if real is None:
            return path
        there, is_removed = f"{self._files}{real}", self._is_removed(real)
        if writes:
            self._make_parents(real, there)
            if brings and not is_removed and not _exists(there):
                _bring(real, there)
            return there
        if is_removed or (_exists(there) and not (_is_folder(there) and _is_folder(real))):
            return there
        return real if self._is_inside else path

    def _make_parents(self, real: str, there: str) -> None:
        """Make the parent folders of `there`, the trial's copy of the file `real`, if the script finds the folder of `real`."""
        parent = os.path.dirname(real)
        if not self._is_removed(parent) and _is_folder(parent):
            _make_folders(os.path.dirname(there))


class _Entries:
    def __init__(self, entries: list[os.DirEntry[str]]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        return self._entries

    def __next__(self) -> os.DirEntry[str]:
        return next(self._entries)

    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None: ...


def _bring(file: str, placed: str) -> None:
    with suppress(OSError):
        if os.path.isfile(file) and os.path.getsize(file) <= _MOST_BROUGHT:
            with open(file, "rb") as source, open(placed, "wb") as target:
                target.write(source.read())


# The system's functions before they are replaced.
_mkdir, _stat, _lstat = os.mkdir, os.stat, os.lstat


def _exists(path: str) -> bool:
    with suppress(OSError, ValueError):
        return bool(_lstat(path))
    return False


def _is_folder(path: str) -> bool:
    with suppress(OSError, ValueError):
        return stat.S_ISDIR(_stat(path).st_mode)
    return False


def _make_folders(path: str) -> None:
    if not _is_folder(path):
        _make_folders(os.path.dirname(path))
        with suppress(FileExistsError):
            _mkdir(path)


def forbid_writes(allowed: tuple[Path, ...]) -> bool:
    """Let this process and its children write below `allowed` only (and /dev and /proc). Return whether that works."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, 0, _VERSION)
    if version < 1:
        return False
    rights = _WRITES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    ruleset = libc.syscall(_CREATE_RULESET, struct.pack("<Q", rights), 8, 0)
    if ruleset < 0:
        return False
    try:
        for folder in (*allowed, Path("/dev"), Path("/proc")):
            descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC) if folder.exists() else -1
            if descriptor >= 0:
                libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("<Qi", rights, descriptor), 0)
                os.close(descriptor)
        libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        return bool(libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)
