"""Stamps of a run's files, which tell whether a result that is kept still holds, and a check for runs that have ended.

A stamp changes when any of its files changes. It is made from names, times and sizes; no file is opened.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from collector.format.keeping import keep
from collector.format.parts import find_files
from collector.format.run import Run
from collector.format.schema import layout
from collector.format.schema.errors import StepscopeError
from collector.format.schema.reading import read_small_file
from profiler_server.derive.store import find_store

Stamp = tuple[tuple[str, int, int], ...]
STAMPED_RANKS = 64
"""Ranks that a run's stamp covers: the first ranks of a larger run."""
FEW_RANKS = 128
LOOK_AGAIN_S = 1.5
"""The greatest age of a kept stamp in seconds. Pages are cached only from files that rested for longer."""


def stamp_run(run_path: Path) -> Stamp:
    """Return the stamp of a run's manifest, and of the manifests and steps tables of its first 64 ranks."""
    return tuple(_stamp_file(path) for path in _list_files(run_path))


def stamp_rank(run_path: Path, rank: int) -> Stamp:
    """Return the stamp of the run's manifest and of one rank's folder with all its entries.

    Hidden entries, such as caches and unfinished files, are left out.
    """
    return _stamp_file(layout.run_file(run_path)), *_stamp_folder(layout.rank_path(run_path, rank))


def stamp_ranks(run_path: Path, ranks: Sequence[int]) -> tuple[Stamp, ...]:
    """Return the stamps of several ranks, for a result that is computed from all of them.

    With more than FEW_RANKS ranks the stamps may be LOOK_AGAIN_S seconds old, because checking tens of thousands of
    files takes long.
    """
    if len(ranks) <= FEW_RANKS:
        return _stamp_each(run_path, ranks)
    store, key, begun_s = find_store(), ("stamps", str(run_path), tuple(ranks)), time.monotonic()
    known = store.find(key)
    if known is None or known.age_s >= LOOK_AGAIN_S:
        return store.put(key, None, _stamp_each(run_path, ranks), begun_s)
    stamps: tuple[Stamp, ...] = known.value
    return stamps


def _stamp_each(run_path: Path, ranks: Sequence[int]) -> tuple[Stamp, ...]:
    run = _stamp_file(layout.run_file(run_path))
    return tuple((run, *_stamp_folder(layout.rank_path(run_path, rank))) for rank in ranks)


def stamp_tables(folder: Path, tables: Iterable[str]) -> Stamp:
    """Return the stamp of some tables in a rank's folder, file by file."""
    return tuple(
        (f"{table}/{name}", changed_ns, size)
        for table in tables
        for name, changed_ns, size in map(_stamp_file, find_files(folder, table))
    )


def shorten_stamp(stamp: Hashable) -> str:
    """Return 16 hexadecimal digits that stand for a stamp, or for a tuple of stamps, in a file name or URL."""
    return hashlib.sha256(repr(stamp).encode()).hexdigest()[:16]


def _list_files(run_path: Path) -> Iterator[Path]:
    yield layout.run_file(run_path)
    try:
        ranks = layout.find_ranks(run_path)[:STAMPED_RANKS]
    except OSError:
        return
    for rank in ranks:
        folder = layout.rank_path(run_path, rank)
        yield layout.rank_file(run_path, rank)
        yield layout.table_file(folder, "steps")
        yield layout.table_parts_folder(folder, "steps")


def _stamp_folder(folder: Path) -> Iterator[tuple[str, int, int]]:
    try:
        with os.scandir(folder) as entries:
            found = sorted((entry for entry in entries if entry.name[0] != "."), key=lambda entry: entry.name)
    except OSError:
        return
    yield from map(_stamp_file, found)


def _stamp_file(path: Path | os.DirEntry[str]) -> tuple[str, int, int]:
    try:
        found = path.stat()
    except OSError:
        return path.name, 0, 0
    return path.name, found.st_mtime_ns, found.st_size


SETTLED_NS = 2_000_000_000
"""The time in ns after a file's last change in which it may change again without a new time stamp: one tick of the file
system's clock."""
_MANY_FILES = 2000
Entry = tuple[str, int, int, int, int]


def find_finished(run_path: Path) -> str | None:
    """Return a text for a run that has ended and whose files have not changed lately. The text changes with any file of
    the run, so a page of the run can be cached under it.

    Else return None: the run records, or has changed within the last seconds. None also for a run with a link, because
    the target of a link can change unseen. For a run of very many files the text may be LOOK_AGAIN_S seconds old.
    """
    store, key, begun_s = find_store(), ("finished", str(run_path)), time.monotonic()
    known = store.find(key)
    if known is not None and known.age_s < LOOK_AGAIN_S:
        stamp: str | None = known.value
        return stamp
    stamp, files = _look(run_path)
    return store.put(key, None, stamp, begun_s) if files > _MANY_FILES else stamp


def _look(run_path: Path) -> tuple[str | None, int]:
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
    """A run contains a symbolic link."""


def _list_entries(folder: Path, depth: int = 3) -> Iterator[Entry]:
    """Yield every file and folder down to `depth` levels as path, time of change, time of status change, size and inode
    number, sorted by name.

    Hidden entries, such as caches, are left out. Times and size of a folder are 0. Raises _LinkError for a link.
    """
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
    """Return whether every rank's manifest has a state other than recording. A rank that stopped writing while
    recording may still be alive.

    Only the state is parsed, because parsing whole manifests would take seconds for thousands of ranks.
    """
    decoder = msgspec.json.Decoder(_State)
    try:
        files = [layout.rank_file(run.path, rank) for rank in run.ranks]
        return all(decoder.decode(read_small_file(file)).state != "recording" for file in files)
    except (OSError, ValueError, RecursionError, msgspec.MsgspecError, StepscopeError):
        return False
