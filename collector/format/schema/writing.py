"""Write files so that a reader, even after a power failure, sees the whole old file or the whole new file.

All files for other readers are written with this module, except the event logs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import get_ident
from typing import BinaryIO

from collector.format.schema.inside import open_inside
from collector.format.schema.removal import remove_file, replace

_LONGEST_NAME = 50
Opener = Callable[[str, int], int]


@contextmanager
def replacing(path: Path, durable: bool = False, opener: Opener = open_inside) -> Iterator[BinaryIO]:
    """Yield a file to write; at the end of the block it replaces the file at the path. OSError passes through.

    An exception in the block changes nothing. With `durable`, the new content is on the disk before it replaces the old
    content. A loss of power then leaves the old file or the new one; `sync_folder` makes the new name durable. `opener`
    sets the access rights.
    """
    partial = name_partial(path)
    if os.path.lexists(partial):
        remove_file(partial)  # of a process that died and had our number
    try:
        # Never a file that is there already: it may be another one's second name.
        with open(partial, "xb", opener=opener) as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        replace(partial, path)
    except BaseException:
        # A second failure of the disk here must not hide the first error.
        with suppress(OSError):
            remove_file(partial)
        raise


def replace_text(path: Path, text: str, durable: bool = False) -> None:
    """Write a UTF-8 file as `replacing` does; with `durable`, the new file survives a loss of power after the call."""
    with replacing(path, durable) as file:
        file.write(text.encode())
    if durable:
        sync_folder(path.parent)


def write_output(path: Path, text: str) -> None:
    """Write a UTF-8 file to a user's path, whole or not at all. A device such as /dev/stdout is written directly."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_text(text, encoding="utf-8")
    else:
        replace_text(path, text)


def name_partial(path: Path) -> Path:
    """Return the hidden temporary name under which a file is written, different in each thread."""
    return path.with_name(f".{path.name[:_LONGEST_NAME]}.{os.getpid()}.{get_ident()}.partial")


def sync_folder(folder: Path) -> None:
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Flush a file to the disk, even if another process wrote it. OSError passes through."""
    _sync(path, os.O_RDONLY | os.O_NONBLOCK)


def sync_tree(folder: Path) -> None:
    """Flush all files below a folder, and their names, to the disk. OSError passes through."""
    for parent, _, names in os.walk(folder):
        for name in names:
            sync_file(Path(parent, name))
        sync_folder(Path(parent))


def sync_parents(folder: Path) -> None:
    """Flush the names of a folder and of all its parents to the disk; parents that cannot be opened are skipped."""
    for parent in folder.absolute().parents:
        with suppress(OSError):  # not our file: it existed before, or its folder cannot be read
            sync_folder(parent)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
