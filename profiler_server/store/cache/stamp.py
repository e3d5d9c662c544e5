"""A stamp of a run's files that changes whenever one of them is written, without opening any."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path

from collector.format.parts import find_files
from collector.format.schema import layout

Stamp = tuple[tuple[str, int, int], ...]
STAMPED_RANKS = 64
"""Ranks that are looked at; a run with more is stamped by the first of them."""


def stamp_run(run_path: Path) -> Stamp:
    """Return the stamp of a run: its manifests and, per rank, what tells that the steps table grew."""
    return tuple(_stamp_file(path) for path in _list_files(run_path))


def stamp_rank(run_path: Path, rank: int) -> Stamp:
    """Return the stamp of everything that lies directly in one rank's folder, tables and folders of parts.

    Hidden entries are caches and files that are not whole yet.
    """
    folder = layout.rank_path(run_path, rank)
    try:
        with os.scandir(folder) as entries:
            paths = sorted(Path(entry.path) for entry in entries if not entry.name.startswith("."))
    except OSError:
        paths = []
    return tuple(_stamp_file(path) for path in (layout.run_file(run_path), *paths))


def stamp_ranks(run_path: Path, ranks: Sequence[int]) -> tuple[Stamp, ...]:
    """Return the stamp of several ranks, for what is computed from all of them."""
    return tuple(stamp_rank(run_path, rank) for rank in ranks)


def stamp_tables(folder: Path, tables: Iterable[str]) -> Stamp:
    """Return the stamp of some tables of a rank's folder, each file by itself."""
    return tuple(
        (f"{table}/{name}", changed_ns, size)
        for table in tables
        for name, changed_ns, size in map(_stamp_file, find_files(folder, table))
    )


def shorten_stamp(stamp: Hashable) -> str:
    """Return a stamp, or a tuple that holds one, as a short text for a file name, a URL or an answer."""
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


def _stamp_file(path: Path) -> tuple[str, int, int]:
    try:
        found = path.stat()
    except OSError:
        return path.name, 0, 0
    return path.name, found.st_mtime_ns, found.st_size
