"""Uploads that were accepted and not yet imported. The folder of each upload holds a list of its files.

When a server ends in any way, the next server imports its uploads. An importing server locks the list, so that two
servers never import the same upload.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from collector.format.schema.reading import read_small_file
from collector.format.schema.removal import remove_file
from collector.format.schema.writing import replace_text, sync_tree

FOLDER_NAME = re.compile("[0-9a-f]{16}")
ACCEPTED_FILE = "accepted.json"
_TRIES = "tries"
_MOST_TRIES = 100
"""The greatest number of tries that are counted."""


def accept(folder: Path, files: Sequence[Path]) -> None:
    """Record that these files, which are below the folder, are to be imported."""
    names = [path.relative_to(folder).as_posix() for path in files]
    sync_tree(folder)
    replace_text(folder / ACCEPTED_FILE, msgspec.json.encode(names).decode(), durable=True)


@contextmanager
def claim(folder: Path) -> Iterator[bool]:
    """Lock an upload during its import. Yield True if this server may import it, False if another server imports it or
    has imported it.
    """
    descriptor = _lock(folder / ACCEPTED_FILE)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)


def count_try(folder: Path) -> int:
    """Count one more start of an upload's import. Return the number of starts since the last `forget_tries`."""
    tries = _read_tries(folder / _TRIES) + 1
    replace_text(folder / _TRIES, "." * tries)  # replace_text follows no link, and writes to no pipe
    return tries


def _read_tries(file: Path) -> int:
    with suppress(FileNotFoundError):
        found = os.lstat(file)
        return min(found.st_size, _MOST_TRIES) if stat.S_ISREG(found.st_mode) else 0
    return 0


def forget_tries(folder: Path) -> None:
    """Set the count of an upload's tries back to 0. Callers do so if its import stopped because the server was
    ended."""
    with suppress(OSError):
        remove_file(folder / _TRIES)


def list_accepted(room: Path) -> list[tuple[Path, tuple[Path, ...]]]:
    """Return the folders of uploads that no server imports, oldest first, with their files."""
    notes = [note for note in room.glob(f"*/{ACCEPTED_FILE}") if FOLDER_NAME.fullmatch(note.parent.name)]
    found = [entry for note in notes if (entry := _read_accepted(note)) is not None]
    return [(folder, files) for _, folder, files in sorted(found) if _is_free(folder)]


def _read_accepted(note: Path) -> tuple[float, Path, tuple[Path, ...]] | None:
    """Return time, folder and files of an upload; None for a foreign or damaged list."""
    try:
        names = msgspec.json.decode(read_small_file(note), type=list[str])
        files = tuple(note.parent / name for name in names)
        if not files or not all(_is_inside(path, note.parent) for path in files):
            return None
        return note.stat().st_mtime, note.parent, files
    except (OSError, ValueError, msgspec.MsgspecError):
        return None


def _is_inside(path: Path, folder: Path) -> bool:
    return path.is_file() and path.resolve() == path and path.is_relative_to(folder)


def _is_free(folder: Path) -> bool:
    with claim(folder) as is_mine:
        return is_mine


def _lock(note: Path) -> int | None:
    """Return a descriptor that holds the lock of a list; None if another process holds the lock, or if the list is
    gone.
    """
    try:
        descriptor = os.open(note, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:  # else it was imported and removed before the lock was ours
            return descriptor
    except OSError:
        pass  # held elsewhere
    os.close(descriptor)
    return None
