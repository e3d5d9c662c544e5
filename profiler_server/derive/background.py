"""Work that no request waits for, in threads that end when nothing is left, and the answers that lack its results."""

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
"""What is started beyond that is refused; whoever needs it asks again."""
HEAD_START_S = 0.3
"""The page that starts something is sent first: both would share one interpreter."""
_MOST_FAILURES = 256
_NAME = "background"
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass
class Watch:
    """Whether the answer to a request is provisional: another will take its place though no file changes."""

    is_provisional: bool = False


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


def watch_request() -> Watch:
    """Watch what is done from here on in this context, and in the threads that it starts."""
    watch = Watch()
    _WATCH.set(watch)
    return watch


def note_provisional() -> None:
    """Say that the answer under way lacks something that is still being computed, or that may go well next time."""
    watch = _WATCH.get()
    if watch is not None:
        watch.is_provisional = True


def is_working() -> bool:
    """Say whether a thread of any `Background` is at work."""
    return any(thread.name == _NAME for thread in threading.enumerate())


class Background:
    """Does each piece of work once, whoever starts it again before it is done; `threads` pieces at a time."""

    def __init__(self, threads: int = 1, head_start: bool = True, most_waiting: int = MOST_WAITING) -> None:
        self._threads = threads
        self._most_waiting = most_waiting
        self._head_start = head_start
        self._lock = threading.Lock()
        self._work: dict[Hashable, tuple[Callable[[], Any], Future[Any]]] = {}
        self._failures: dict[Hashable, Exception] = {}
        self._running = 0

    def start(self, key: Hashable, work: Callable[[], T]) -> Future[T] | None:
        """Have some work done in this context; return its future result, or None if too much waits already.

        The answer that is being made lacks this result: it counts as provisional.
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
        """Return why some work failed, to the first who asks: whoever asks next has it tried again."""
        with self._lock:
            failure = self._failures.pop(key, None)
        if failure is not None:
            note_provisional()
        return failure

    def drop_waiting(self) -> list[Future[Any]]:
        """Cancel what has not begun; return what is under way, which ends by itself, or with the process."""
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
