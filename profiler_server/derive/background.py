"""Work in background threads, so that pages need not wait for it, and a mark on answers that lack a result of this
work. The threads end when no work is left."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from collector.format.schema.errors import StepscopeError

MOST_WAITING = 32
"""Pieces of work that may wait. Further work is refused, and the caller asks again later."""
HEAD_START_S = 0.3
"""Seconds that background work waits for the page that started it, because both share one interpreter."""
_MOST_FAILURES = 256
_NAME = "background"
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass
class Watch:
    """The mark on one answer to a request. If `is_provisional`, the answer lacks a result, and the next one may
    differ."""

    is_provisional: bool = False


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


def watch_request() -> Watch:
    """Return a new watch, for one answer. `note_provisional` marks it in this context and in copies of this context."""
    watch = Watch()
    _WATCH.set(watch)
    return watch


def note_provisional() -> None:
    """Mark the current answer as provisional, if it is watched: a result is missing, or a retry may succeed."""
    watch = _WATCH.get()
    if watch is not None:
        watch.is_provisional = True


def is_working() -> bool:
    return any(thread.name == _NAME for thread in threading.enumerate())


class Background:
    """A runner of work in at most `threads` threads. At most `most_waiting` pieces of work wait or run at a time.
    With `head_start`, work begins a little later. Work that already waits or runs is not started a second time."""

    def __init__(self, threads: int = 1, head_start: bool = True, most_waiting: int = MOST_WAITING) -> None:
        self._threads = threads
        self._most_waiting = most_waiting
        self._head_start = head_start
        self._lock = threading.Lock()
        self._work: dict[Hashable, tuple[Callable[[], Any], Future[Any]]] = {}
        self._failures: dict[Hashable, Exception] = {}
        self._running = 0

    def start(self, key: Hashable, work: Callable[[], T]) -> Future[T] | None:
        """Run `work` in a background thread. Return the future of its result; None if too much work is waiting.

        If work of the same `key` waits or runs, the future of that work is returned, and `work` is not run. The
        current answer becomes provisional, because it lacks the result.
        """
        note_provisional()
        with self._lock:
            if key in self._work:
                return cast("Future[T]", self._work[key][1])
            if len(self._work) >= self._most_waiting:
                return None
            future = Future[T]()
            context = copy_context()
            self._work[key] = lambda: context.run(work), future
            if self._running < self._threads:
                self._running += 1
                threading.Thread(target=self._run, name=_NAME, daemon=True).start()
            return future

    def take_failure(self, key: Hashable) -> Exception | None:
        """Return the exception with which the work of `key` failed, and forget it, so that the next request starts the
        work again. None if the work did not fail.
        """
        with self._lock:
            failure = self._failures.pop(key, None)
        if failure is not None:
            note_provisional()
        return failure

    def drop_waiting(self) -> list[Future[Any]]:
        """Cancel the work that has not begun. Return the futures of running work, which ends by itself or with the
        process."""
        with self._lock:
            for key, (_, future) in list(self._work.items()):
                if future.cancel():
                    del self._work[key]
            return [future for _, future in self._work.values()]

    def _run(self) -> None:
        if self._head_start:
            time.sleep(HEAD_START_S)
        while (taken := self._take()) is not None:
            key, work, future = taken
            try:
                result = work()
            except Exception as error:  # The thread goes on with the next; who started this is told.
                if not isinstance(error, StepscopeError):
                    log.warning("work in the background failed", exc_info=True)
                self._forget(key, error)
                future.set_exception(error)
            else:
                self._forget(key)
                future.set_result(result)

    def _take(self) -> tuple[Hashable, Callable[[], Any], Future[Any]] | None:
        with self._lock:
            for key, (work, future) in self._work.items():
                if not future.running() and future.set_running_or_notify_cancel():
                    return key, work, future
            self._running -= 1
            return None

    def _forget(self, key: Hashable, failure: Exception | None = None) -> None:
        with self._lock:
            del self._work[key]
            if failure is not None:
                self._failures[key] = failure
                while len(self._failures) > _MOST_FAILURES:
                    del self._failures[next(iter(self._failures))]
