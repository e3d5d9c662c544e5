"""Write files so that whoever reads meanwhile, or after the power failed, sees the old one or the new one, never a part.

Everything that this program writes for others to read goes through here, but for the event logs.
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
    """Give a file to write to; what is in it at the end takes the place of the one at the path. OSError passes through.

    After an exception nothing has changed. `durable`: it is on the disk before it takes that place, so that a loss of
    power leaves the one or the other; `sync_folder` brings its name there, too. `opener` decides who may read it.
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
        # A disk that fails here, too, must not hide what it said before.
        with suppress(OSError):
            remove_file(partial)
        raise


def replace_text(path: Path, text: str, durable: bool = False) -> None:
    """Write a UTF-8 file as `replacing` does; one that is `durable` is there after any loss of power from then on."""
    with replacing(path, durable) as file:
        file.write(text.encode())
    if durable:
        sync_folder(path.parent)


def write_output(path: Path, text: str) -> None:
    """Write a UTF-8 file where a user asked for it: whole or not at all, or into what is no file, such as /dev/stdout."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        path.write_text(text, encoding="utf-8")
    else:
        replace_text(path, text)


def name_partial(path: Path) -> Path:
    """Return the hidden name beside a file that it is written under, another one for each thread."""
    return path.with_name(f".{path.name[:_LONGEST_NAME]}.{os.getpid()}.{get_ident()}.partial")


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk. OSError passes through."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def sync_file(path: Path) -> None:
    """Bring a file to the disk that another process may have written. OSError passes through."""
    _sync(path, os.O_RDONLY | os.O_NONBLOCK)


def sync_tree(folder: Path) -> None:
    """Bring all files below a folder, and their names, to the disk. OSError passes through."""
    for parent, _, names in os.walk(folder):
        for name in names:
            sync_file(Path(parent, name))
        sync_folder(Path(parent))


def sync_parents(folder: Path) -> None:
    """Bring the names of a folder and of all those above it to the disk, as far as they can be opened."""
    for parent in folder.absolute().parents:
        with suppress(OSError):  # not ours: it was there before, or nobody may look into it
            sync_folder(parent)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
