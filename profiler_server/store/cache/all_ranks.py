"""The results of all ranks of a run of very many, as they were when they were last looked at; read in the background, so
that a page shows what there is so far.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from collector.format.run import Run
from collector.traces.workers import StoppedError
from profiler_server.store.cache.background import Background
from profiler_server.store.cache.partials import STOPPED, Partials, Task
from profiler_server.store.cache.provisional import note_provisional
from profiler_server.store.cache.stamp import LOOK_AGAIN_S, stamp_ranks

PATIENCE_S = 0.7
"""How long a page waits for what is read for the first time: what was kept on disk is there by then."""
REST = 3.0
"""A run whose files change all the time is read again after so many times the time that it took."""
STOP_LIMIT_S = 2.0
_MOST_RUNS = 4
T = TypeVar("T")


@dataclass(frozen=True)
class SoFar(Generic[T]):
    """`results` of `total` ranks, in their order. `is_whole` says that they are of all, and may be some seconds old."""

    results: tuple[T, ...]
    total: int
    is_whole: bool


@dataclass
class _Look(Generic[T]):
    """`known` are the results of files with these stamps, None until all were read once; `reading` those so far.

    `prepared` is `known` when what a page makes of it was made. `is_live` says that a rank records; from `again_s` on
    such a run is looked at again, though no file has changed: a process that dies changes none.
    """

    lock: threading.RLock = field(default_factory=threading.RLock)
    stamps: Hashable = None
    known: tuple[T, ...] | None = None
    prepared: tuple[T, ...] | None = None
    reading: dict[int, T] = field(default_factory=dict)
    is_live: bool = False
    again_s: float = 0.0
    failure: Exception | None = None


@dataclass(frozen=True)
class Wanted(Generic[T]):
    """Ranks of a run, and the number that their results depend on.

    `prepare` makes, of all results, whatever else a page needs and takes long; it is done in the background, too.
    """

    run: Run
    ranks: Sequence[int]
    number: int
    prepare: Callable[[tuple[T, ...]], None] = lambda results: None

    @property
    def stamps(self) -> Hashable:
        return tuple(self.ranks), stamp_ranks(self.run.path, self.ranks), self.number


class AllRanks(Generic[T]):
    """`read_task` is that of `partials`, by a name that another process finds. `refresh` returns a result as it is now
    though no file has changed; `is_live` says of which that is to be asked."""

    def __init__(
        self,
        partials: Partials[T],
        read_task: Callable[[Task], list[T]],
        is_live: Callable[[T], bool],
        refresh: Callable[[Run, T], T],
    ) -> None:
        self._partials = partials
        self._read_task = read_task
        self._is_live = is_live
        self._refresh = refresh
        self._lock = threading.Lock()
        self._looks: OrderedDict[Hashable, _Look[T]] = OrderedDict()
        self._background = Background(head_start=False)

    def read(self, wanted: Wanted[T]) -> tuple[T, ...]:
        """Return the results of all ranks, however long it takes; whoever asks meanwhile waits for the same.

        Of a run that records they may be some seconds old.
        """
        look = self._find(wanted.run)
        with look.lock:
            stamps, now = wanted.stamps, time.monotonic()
            is_paced = look.is_live and now < look.again_s
            if look.known is not None and (is_paced or (look.stamps == stamps and not look.is_live)):
                return look.known
            look.known = self._read(look, wanted)
            look.stamps, look.reading = stamps, {}
            look.is_live = any(map(self._is_live, look.known))
            look.again_s = time.monotonic() + max(REST * (time.monotonic() - now), LOOK_AGAIN_S)
            return look.known

    def _read(self, look: _Look[T], wanted: Wanted[T]) -> tuple[T, ...]:
        found = look.reading = {}
        for rank, result in self._partials.read_all(wanted.run, wanted.ranks, wanted.number, self._read_task):
            found[rank] = self._refresh(wanted.run, result) if self._is_live(result) else result
            if STOPPED.is_set():
                raise StoppedError("the ranks are not read to their end")
        return tuple(found[rank] for rank in wanted.ranks)

    def peek(self, wanted: Wanted[T]) -> SoFar[T]:
        """Return the results so far, at once or nearly; what is missing, or has changed, is read in the background."""
        look = self._find(wanted.run)
        is_same = look.stamps == wanted.stamps and not look.is_live
        if look.prepared is not None and look.prepared is look.known:
            if is_same:
                return SoFar(look.prepared, len(look.prepared), True)
            if look.is_live and time.monotonic() < look.again_s:
                note_provisional()
                return SoFar(look.prepared, len(look.prepared), True)
        future = self._background.start(wanted.run.key, lambda: self._prepare(look, wanted))
        if future is not None and not (look.is_live and look.prepared is not None):
            wait([future], PATIENCE_S)
        if look.failure is not None:
            failure, look.failure = look.failure, None
            raise failure
        if look.prepared is not None:
            return SoFar(look.prepared, len(look.prepared), True)
        found = dict(look.reading)
        return SoFar(tuple(found[rank] for rank in sorted(found)), len(wanted.ranks), False)

    def stop(self) -> None:
        """End what is being read, and wait until its processes have ended, for a moment."""
        STOPPED.set()
        self._background.drop_waiting()
        with self._lock:
            looks = list(self._looks.values())
        for look in looks:
            if look.lock.acquire(timeout=STOP_LIMIT_S):
                look.lock.release()
        STOPPED.clear()

    def _prepare(self, look: _Look[T], wanted: Wanted[T]) -> None:
        try:
            known = self.read(wanted)
            wanted.prepare(known)
            look.prepared = known
        except StoppedError:
            return
        except Exception as error:  # Nobody waits in this thread: the page that asks next is told.
            look.failure = error
            raise

    def _find(self, run: Run) -> _Look[T]:
        with self._lock:
            look = self._looks.setdefault(run.key, _Look())
            self._looks.move_to_end(run.key)
            while len(self._looks) > _MOST_RUNS:
                self._looks.popitem(last=False)
            return look
