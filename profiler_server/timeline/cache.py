"""The place of a timeline's cache, and its building: once for each content of the tables, by one builder at a time.

The cache belongs to the run: `rank_<r>/.timeline/<stamp>/`. If that folder is not writable, the cache is in a private
folder of the system's temporary directory. A seal holds the size and checksum of each file, so that a cut or changed
file is never read. Arrow itself does not check a file while reading: a damaged file may end the process, or show slices
that never ran.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
import pyarrow as pa

from collector.format.run import RankRun
from collector.format.schema.errors import OutputError, StepscopeError, TableBrokenError
from collector.format.schema.inside import is_plain_folder
from collector.format.schema.modes import align_all
from collector.format.schema.removal import (
    Abandoned,
    Marked,
    remove_file,
    remove_tree,
    replace,
    scratch_folder,
    tolerated,
)
from profiler_server.derive.background import Background, note_provisional
from profiler_server.derive.records import list_roots, make_root
from profiler_server.derive.store import find_store
from profiler_server.timeline.build import FORMAT_VERSION, INDEX_FILE, Progress, build_timeline
from profiler_server.timeline.sources import count_slices, find_stamp
from profiler_server.timeline.store import Timeline

SEAL_FILE = "seal.json"
_PIECE_BYTES = 1 << 20
_WHOLE_BYTES = 256 << 20
"""Bytes above which only the ends of a file are checked, because opening a timeline waits for the check."""
_ENDS_BYTES = 8 << 20


class BrokenSealError(ValueError):
    """A file of the cache differs from the file that was written."""


def seal_folder(folder: Path) -> None:
    """Write the seal of a folder: the size and checksum of each file. Raises OSError."""
    sums = {path.name: _sum_file(path) for path in sorted(folder.iterdir())}
    (folder / SEAL_FILE).write_bytes(msgspec.json.encode(sums))


def check_seal(folder: Path) -> None:
    """Raise BrokenSealError or OSError unless the files of a folder match their seal."""
    try:
        _check_regular(folder / SEAL_FILE)
        sums = msgspec.json.decode((folder / SEAL_FILE).read_bytes(), type=dict[str, tuple[int, int]])
    except msgspec.MsgspecError as error:
        raise BrokenSealError(f"{folder / SEAL_FILE}: {error}") from None
    if not sums:
        raise BrokenSealError(f"{folder / SEAL_FILE} names no file")
    for name, known in sums.items():
        if "/" in name or _sum_file(folder / name) != known:
            raise BrokenSealError(f"{folder / name} is not as it was written")


def _sum_file(path: Path) -> tuple[int, int]:
    size = _check_regular(path)
    stretches = [(0, size)] if size <= _WHOLE_BYTES else [(0, _ENDS_BYTES), (size - _ENDS_BYTES, size)]
    checksum = 0
    with path.open("rb") as file:
        for begin, end in stretches:
            file.seek(begin)
            while begin < end and (piece := file.read(min(_PIECE_BYTES, end - begin))):
                checksum = zlib.crc32(piece, checksum)
                begin += len(piece)
    return size, checksum


def _check_regular(path: Path) -> int:
    """Return the size of a regular file. Raises BrokenSealError for a link, pipe or folder."""
    found = os.lstat(path)
    if not stat.S_ISREG(found.st_mode):
        raise BrokenSealError(f"{path} is no regular file")
    return found.st_size


log = logging.getLogger(__name__)
CACHE_FOLDER = ".timeline"
LARGE_SLICES = 150_000
_KEPT_STAMPS = 2
_OPEN_TIMELINES = 16
_CACHE = Marked(re.compile("[0-9a-f]{16}"), (SEAL_FILE, INDEX_FILE))
_PARTIAL_PREFIX = ".partial-"
_ABANDONED = Abandoned(re.compile(rf"{re.escape(_PARTIAL_PREFIX)}[0-9a-f]{{16}}"), after_s=6 * 3600.0)
DAMAGE = (
    *(OSError, ValueError, LookupError, TypeError, ArithmeticError, MemoryError),
    *(msgspec.MsgspecError, pa.ArrowException),
)
"""Exceptions that a reader gets from a cut, changed or removed file."""
T = TypeVar("T")


class TimelineCache:
    """A cache of open timelines, which builds missing timelines. Several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[str, str], Timeline] = OrderedDict()
        self._building: dict[tuple[str, str], threading.Lock] = {}
        self._progress: dict[tuple[str, str], float] = {}
        self._background = Background(threads=2, head_start=False)

    def open(self, rank: RankRun) -> Timeline:
        """Return the timeline of a rank's current tables. Raises RunError, or OutputError on a full disk.

        The timeline covers the whole rank, even if steps are selected.
        """
        rank = rank.whole
        stamp = find_stamp(rank, FORMAT_VERSION)
        key = (str(rank.folder), stamp)
        with self._lock:
            if (known := self._find(key)) is not None:
                return known
            lock = self._building.setdefault(key, threading.Lock())
        with lock:
            with self._lock:
                if (known := self._find(key)) is not None:
                    return known
            timeline = self._open_or_rebuild(rank, stamp)
            with self._lock:
                self._open[key] = timeline
                self._building.pop(key, None)
                while len(self._open) > _OPEN_TIMELINES:
                    self._open.popitem(last=False)
            return timeline

    def find(self, rank: RankRun, stamp: str) -> Timeline | None:
        """Return the open timeline of the rank with this stamp, None if it is not open.

        With the stamp, all tiles of one page come from the same timeline, even while the run records.
        """
        with self._lock:
            return self._find((str(rank.folder), stamp))

    def _find(self, key: tuple[str, str]) -> Timeline | None:
        """Return an open timeline; None if it is not open, or if `_remove_old` has removed its files."""
        known = self._open.get(key)
        if known is None or not (known.folder / INDEX_FILE).is_file():
            self._open.pop(key, None)
            return None
        self._open.move_to_end(key)
        return known

    def ask(self, rank: RankRun, question: Callable[[Timeline], T], open_: Callable[[], Timeline] | None = None) -> T:
        """Return `question` applied to a rank's timeline, or to the timeline that `open_` returns.

        If the question raises an exception in `DAMAGE`, the timeline's files are built again, and the question is
        repeated once. All other exceptions, and those of `open_`, pass through.
        """
        timeline = open_() if open_ is not None else self.open(rank)
        try:
            return question(timeline)
        except DAMAGE as error:
            self.drop(timeline, error)
            return question(self.open(rank))

    def drop(self, timeline: Timeline, error: Exception) -> None:
        """Forget an unreadable timeline and remove its files. The next request builds the timeline again."""
        with self._lock:
            self._open.pop((str(timeline.rank.folder), timeline.stamp), None)
        _remove_damaged(timeline.folder, error)

    def _find_built(self, rank: RankRun) -> bool:
        stamp = find_stamp(rank, FORMAT_VERSION)
        if self.find(rank, stamp):
            return True
        return any((root / stamp / INDEX_FILE).is_file() for root in list_roots(rank, CACHE_FOLDER))

    def find_progress(self, rank: RankRun) -> float | None:
        with self._lock:
            found = [share for (folder, _), share in self._progress.items() if folder == str(rank.folder)]
        return max(found) if found else None

    def is_awaited(self, rank: RankRun) -> bool:
        """Return whether the timeline is still being built in the background. A page then shows the progress instead of
        waiting.

        The first call starts the build. After a failed build, the next call raises the exception of the build, and the
        call after that builds again."""
        if self._find_built(rank) or count_slices(rank) <= LARGE_SLICES:
            return False
        if (failure := self._background.take_failure(rank.whole.key)) is not None:
            raise _explain_failure(rank, failure)
        note_provisional()
        if self.find_progress(rank) is None:
            self._background.start(rank.whole.key, lambda: self.open(rank))
        return True

    def _open_or_rebuild(self, rank: RankRun, stamp: str) -> Timeline:
        folder = self._find_or_build(rank, stamp)
        try:
            check_seal(folder)
            return Timeline(folder, rank, stamp)
        except DAMAGE as error:
            _remove_damaged(folder, error)
            return Timeline(self._find_or_build(rank, stamp), rank, stamp)

    def _find_or_build(self, rank: RankRun, stamp: str) -> Path:
        roots = list_roots(rank, CACHE_FOLDER)
        for root in roots:
            if (root / stamp / INDEX_FILE).is_file():
                return root / stamp
        key = (str(rank.folder), stamp)

        def note(share: float) -> None:
            with self._lock:
                self._progress[key] = share

        note(0.0)
        try:
            return _build(rank, stamp, roots, note)
        finally:
            with self._lock:
                self._progress.pop(key, None)


def _remove_damaged(folder: Path, error: Exception) -> None:
    log.warning("the timeline's cache %s is damaged and is built again: %r", folder, error)
    with tolerated():
        remove_tree(folder, _CACHE)


def _build(rank: RankRun, stamp: str, roots: list[Path], note: Progress) -> Path:
    problem: OSError | None = None
    for root in roots:
        try:
            make_root(root)
            _remove_old(root)
            with scratch_folder(_PARTIAL_PREFIX, root) as scratch:
                return _build_in(rank, root / stamp, scratch / "cache", note)
        except OSError as error:  # noqa: PERF203 two places at most
            problem = error
    raise OutputError(
        f"the timeline's cache cannot be written to {' nor '.join(map(str, roots))} ({problem}); make room"
    )


def _build_in(rank: RankRun, folder: Path, partial: Path, note: Progress) -> Path:
    build_timeline(rank, partial, note)
    seal_folder(partial)
    align_all(partial, folder.parent)
    # Building takes hundreds of megabytes, and the server runs for weeks.
    pa.default_memory_pool().release_unused()
    try:
        replace(partial, folder)
    except OSError:
        # Another server was faster, and its cache is as good. A folder without an index is an incomplete cache.
        if not (folder / INDEX_FILE).is_file():
            _remove(folder)
            replace(partial, folder)
    return folder


def _explain_failure(rank: RankRun, error: Exception) -> StepscopeError:
    if isinstance(error, StepscopeError):
        return error
    if isinstance(error, OSError):
        return OutputError(f"the timeline cannot be prepared: {error}; make room, or see who may write there")
    kind = f"{type(error).__name__}: {error}"
    return TableBrokenError(f"the timeline of {rank.folder} cannot be prepared ({kind[:300]})")


def _remove(path: Path) -> None:
    """Remove the folder of a cache, or a file or link in its place. Raises OSError."""
    if is_plain_folder(path):
        remove_tree(path, _CACHE)
    else:
        remove_file(path)


def _remove_old(root: Path) -> None:
    """Remove old caches. The newest are kept, so that an open page of a live run still finds its tiles."""
    whole = [path for path in root.iterdir() if _CACHE.form.fullmatch(path.name)]
    whole.sort(key=_find_time, reverse=True)
    for path in whole[_KEPT_STAMPS - 1 :]:
        with tolerated():
            remove_tree(path, _CACHE)
    for path in root.glob(f"{_PARTIAL_PREFIX}*"):
        with suppress(OSError):  # most are being built, some by other users
            remove_tree(path, _ABANDONED)


def _find_time(path: Path) -> float:
    with suppress(OSError):
        return path.lstat().st_mtime
    return 0.0


def find_timelines() -> TimelineCache:
    """Return the cache of open timelines that all pages and routes of a server, or a command, share."""
    return find_store().part(TimelineCache)
