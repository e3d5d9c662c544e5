"""What a trial writes goes to a scratch folder: a training that is tried must leave nothing behind and overwrite nothing.

Functions of Python that write, move or remove files are given paths in the scratch folder. What is written there is read
from there. Code that writes by other means, such as a library in C, is refused by the system (Landlock, Linux 5.13 and
later): outside of the scratch folder the process may only read.
"""

from __future__ import annotations

import builtins
import ctypes
import functools
import io
import os
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
_VERSION = 1
_NO_NEW_PRIVILEGES = 38
_WRITES = (1 << 1) | sum(1 << bit for bit in range(4, 13))
"""Rights of Landlock's first version: write a file; remove, make and link files and folders."""
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_WRITING = frozenset("wax+")
_MOST_BROUGHT = 1 << 28
_DEVICES = ("/dev", "/proc", "/sys")


class Redirect:
    """Leads writes below `scratch`. `free` are folders that may be written as they are, such as that of the recording."""

    def __init__(self, scratch: Path, free: tuple[Path, ...]) -> None:
        self._files = scratch / "files"
        self._free = tuple(str(path.resolve()) for path in (scratch, *free))
        self._files.mkdir()
        self._removed: set[str] = set()

    def install(self) -> None:
        """Replace the functions of Python that write files, and those of PyTorch when it is imported."""
        opened = io.open

        @functools.wraps(opened)
        def open_file(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            placed = self.place(file, bool(_WRITING & set(mode)))
            if placed is not file and not {"w", "x"} & set(mode):
                self._bring(file, placed, opened)
            return opened(placed, mode, *args, **kwargs)

        builtins.open = io.open = open_file
        low_level = os.open

        @functools.wraps(low_level)
        def open_descriptor(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if kwargs.get("dir_fd") is not None:
                return low_level(path, flags, *args, **kwargs)
            writes = bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
            return low_level(self.place(path, writes), flags, *args, **kwargs)

        os.open = open_descriptor
        for name in ("mkdir", "remove", "unlink", "rmdir", "truncate", "chmod", "utime", "mkfifo"):
            self._wrap(name, 1)
        for name in ("rename", "replace", "link", "symlink"):
            self._wrap(name, 2)
        for name in ("stat", "lstat", "listdir", "scandir", "access"):
            self._wrap(name, 1, writes=False)

    def _bring(self, file: Any, placed: str, opened: Callable[..., Any]) -> None:
        """Copy a file that is changed in place, if it is not there yet and not too large."""
        if os.path.lexists(placed) or not os.path.isfile(file) or os.path.getsize(file) > _MOST_BROUGHT:
            return
        with opened(file, "rb") as source, opened(placed, "wb") as target:
            target.write(source.read())

    def lead(self, module: Any, name: str, position: int, writes: bool) -> None:
        """Lead the path at this position of a function that opens files by itself, outside of Python."""
        original = getattr(module, name)

        @functools.wraps(original)
        def led(*args: Any, **kwargs: Any) -> Any:
            if len(args) > position and isinstance(args[position], (str, bytes, os.PathLike)):
                args = (*args[:position], self.place(args[position], writes), *args[position + 1 :])
            return original(*args, **kwargs)

        setattr(module, name, led)

    def _wrap(self, name: str, count: int, writes: bool = True) -> None:
        original: Callable[..., Any] = getattr(os, name)

        @functools.wraps(original)
        def led(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("dir_fd") is not None or kwargs.get("src_dir_fd") is not None:
                return original(*args, **kwargs)
            places = [self.place(path, writes) for path in args[:count]]
            try:
                return original(*places, *args[count:], **kwargs)
            except FileNotFoundError:
                if not writes or name not in ("remove", "unlink", "rmdir"):
                    raise
                return None  # a file of the user's that the script removes: it stays

        setattr(os, name, led)

    def place(self, path: Any, writes: bool) -> Any:
        """Return where a path leads: itself, or its copy below the scratch folder."""
        if isinstance(path, int):
            return path
        with suppress(TypeError, ValueError):
            text = os.fsdecode(path)
            real = os.path.abspath(text)
            if real.startswith(_DEVICES) or any(real == free or real.startswith(free + "/") for free in self._free):
                return path
            there = f"{self._files}{real}"
            if os.path.lexists(there):
                return there
            if writes:
                self._make_parents(real, there)
                return there
        return path

    def _make_parents(self, real: str, there: str) -> None:
        """Make the folders of the copy, as far as they are among the user's or were made by the trial."""
        parent = os.path.dirname(real)
        if os.path.isdir(parent) or os.path.isdir(os.path.dirname(there)):
            _make_folders(os.path.dirname(there))


_mkdir = os.mkdir


def _make_folders(path: str) -> None:
    if not os.path.isdir(path):
        _make_folders(os.path.dirname(path))
        with suppress(FileExistsError):
            _mkdir(path)


def forbid_writes(allowed: tuple[Path, ...]) -> bool:
    """Let this process and its children write below these folders only; return whether the system can do that."""
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
