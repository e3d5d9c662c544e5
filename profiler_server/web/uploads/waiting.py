"""Uploads that were accepted and not imported yet, as a list in the folder of each: a server that is ended leaves them
to the next. Whoever imports one takes the list away first, so that two servers never import the same.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from collector.format.schema.reading import read_small_file
from collector.format.schema.writing import replace_text, sync_tree

_ACCEPTED = "accepted.json"
_TAKEN = "taken.json"


def accept(folder: Path, files: Sequence[Path]) -> None:
    """Note that these files, which lie below the folder, are to be imported."""
    names = [path.relative_to(folder).as_posix() for path in files]
    sync_tree(folder)
    replace_text(folder / _ACCEPTED, msgspec.json.encode(names).decode(), durable=True)


def take(folder: Path) -> bool:
    """Take an upload to import it; False if another server has done so."""
    try:
        os.rename(folder / _ACCEPTED, folder / _TAKEN)
    except OSError:
        return False
    return True


def list_accepted(room: Path) -> list[tuple[Path, tuple[Path, ...]]]:
    """Return the folders of the uploads that wait, the oldest first, with their files."""
    found = [entry for note in room.glob(f"*/{_ACCEPTED}") if (entry := _read_accepted(note)) is not None]
    return [(folder, files) for _, folder, files in sorted(found)]


def _read_accepted(note: Path) -> tuple[float, Path, tuple[Path, ...]] | None:
    """Return time, folder and files of an upload; None for a list that is not ours, or damaged."""
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
