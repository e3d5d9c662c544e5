"""Runs that have ended, and the stamp of all that a page can show of them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from collector.format.keeping import keep
from collector.format.run import Run
from collector.format.schema import layout
from collector.format.schema.errors import StepscopeError
from collector.format.schema.reading import read_small_file
from profiler_server.derive.stamps import LOOK_AGAIN_S, shorten_stamp
from profiler_server.derive.store import find_store

SETTLED_NS = 2_000_000_000
"""A file that changed so lately may change again within one tick of the file system's clock."""
_MANY_FILES = 2000
Entry = tuple[str, int, int, int, int]


def find_finished(run_path: Path) -> str | None:
    """Return what changes with any file of a run; None while it records or has just changed, and where a link leads
    to what another may change unseen.

    Of a run of very many files it may be LOOK_AGAIN_S old.
    """
    store, key, begun_s = find_store(), ("finished", str(run_path)), time.monotonic()
    known = store.find(key)
    if known is not None and known.age_s < LOOK_AGAIN_S:
        stamp: str | None = known.value
        return stamp
    stamp, files = _look(run_path)
    return store.put(key, None, stamp, begun_s) if files > _MANY_FILES else stamp


def _look(run_path: Path) -> tuple[str | None, int]:
    """Return the stamp, and how many files were looked at."""
    try:
        if run_path.resolve() != run_path:
            return None, 0
        entries = list(_list_entries(layout.profiler_path(run_path)))
    except (OSError, _LinkError):
        return None, 0
    if not entries or max(max(entry[1], entry[2]) for entry in entries) > time.time_ns() - SETTLED_NS:
        return None, len(entries)
    stamp = shorten_stamp(tuple(entries))
    has_ended = keep(("ended", str(run_path)), stamp, lambda: _read_ended(Run(run_path)))
    return stamp if has_ended else None, len(entries)


class _LinkError(Exception):
    """A run holds a symbolic link."""


def _list_entries(folder: Path, depth: int = 3) -> Iterator[Entry]:
    """Yield path, times, size and number of every file and folder, in order. What is hidden is derived from the others."""
    with os.scandir(folder) as found:
        entries = sorted((entry for entry in found if not entry.name.startswith(".")), key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_symlink():
            raise _LinkError
        known = entry.stat(follow_symlinks=False)
        if not entry.is_dir():
            yield entry.path, known.st_mtime_ns, known.st_ctime_ns, known.st_size, known.st_ino
            continue
        # The times of a folder change with every cache in it, and its files stand here themselves.
        yield entry.path, 0, 0, 0, known.st_ino
        if depth > 1:
            yield from _list_entries(Path(entry.path), depth - 1)


class _State(msgspec.Struct):
    state: str


def _read_ended(run: Run) -> bool:
    """Say whether every rank has written that it has ended; one that fell silent may be found to be alive.

    The rest of a manifest is not looked at: of thousands of ranks that would take seconds.
    """
    decoder = msgspec.json.Decoder(_State)
    try:
        files = [layout.rank_file(run.path, rank) for rank in run.ranks]
        return all(decoder.decode(read_small_file(file)).state != "recording" for file in files)
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError, StepscopeError):
        return False
