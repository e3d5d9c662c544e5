"""Runs that have ended, and the stamp of all that a page can show of them."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from collector.format.run import Run
from collector.format.schema import layout
from collector.format.schema.errors import StepscopeError
from collector.format.schema.reading import read_small_file
from profiler_server.store.cache.stamp import LOOK_AGAIN_S, shorten_stamp

SETTLED_NS = 2_000_000_000
"""A file that changed so lately may change again within one tick of the file system's clock."""
_MOST_KNOWN = 4096
_MANY_FILES = 2000
_MOST_LARGE = 32
Entry = tuple[str, int, int, int, int]


class FinishedRuns:
    """Stamps of runs none of whose ranks records. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: OrderedDict[str, tuple[str, bool]] = OrderedDict()
        self._looked: dict[Path, tuple[float, str | None]] = {}

    def find_stamp(self, run_path: Path) -> str | None:
        """Return what changes with any file of the run; None while it records or has just changed, and where a link leads
        to what another may change unseen.

        Of a run of very many files it may be LOOK_AGAIN_S old.
        """
        begun_s = time.monotonic()
        with self._lock:
            until_s, stamp = self._looked.get(run_path, (0.0, None))
        if begun_s < until_s:
            return stamp
        stamp, files = self._look(run_path)
        with self._lock:
            if files > _MANY_FILES:
                if len(self._looked) > _MOST_LARGE:
                    self._looked.clear()
                self._looked[run_path] = begun_s + LOOK_AGAIN_S, stamp
        return stamp

    def _look(self, run_path: Path) -> tuple[str | None, int]:
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
        return stamp if self._has_ended(run_path, stamp) else None, len(entries)

    def _has_ended(self, run_path: Path, stamp: str) -> bool:
        key = str(run_path)
        with self._lock:
            known = self._ended.get(key)
        if known is not None and known[0] == stamp:
            return known[1]
        has_ended = _read_ended(Run(run_path))
        with self._lock:
            self._ended[key] = stamp, has_ended
            while len(self._ended) > _MOST_KNOWN:
                self._ended.popitem(last=False)
        return has_ended


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
