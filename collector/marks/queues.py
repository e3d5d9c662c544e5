"""Queues between stages of the user's own: how deep they were, and who waited for them."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

from collector.edge import hide_frame
from collector.format.schema.errors import UsageError
from collector.marks import outlet as outlets
from collector.marks.outlet import Outlet
from collector.marks.stages import INPUT_WAIT, OUTPUT_WAIT, Wait, add_wait
from collector.ring.mark_log import QUEUE, QueueDepth

_NO_LIMIT = 1 << 30
"""Queues of multiprocessing without a limit have the largest one that a semaphore takes."""


class WatchedQueue:
    """A queue as it was, with clocks on `get` and `put`; everything else is the queue's own. Can be sent to a process."""

    def __init__(self, name: str, queue: Any, capacity: int) -> None:
        self._name = name
        self._queue = queue
        self._capacity = capacity

    def __reduce__(self) -> tuple[Any, ...]:
        return WatchedQueue, (self._name, self._queue, self._capacity)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """Return the next item, as the queue's own `get` does."""
        try:
            return self._get(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    def put(self, item: Any, *args: Any, **kwargs: Any) -> None:
        """Put an item, as the queue's own `put` does."""
        try:
            self._put(item, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise

    def get_nowait(self) -> Any:
        """Return the next item if there is one, as the queue's own `get_nowait` does."""
        try:
            return self._get(block=False)
        except BaseException as error:
            hide_frame(error)
            raise

    def put_nowait(self, item: Any) -> None:
        """Put an item if there is room, as the queue's own `put_nowait` does."""
        try:
            self._put(item, block=False)
        except BaseException as error:
            hide_frame(error)
            raise

    def _get(self, *args: Any, **kwargs: Any) -> Any:
        outlet = outlets.current
        watched = outlet is not None and outlet.takes_pipeline
        trainer = None
        if outlet is not None and watched:
            self._sample(outlet)
            trainer = outlet.trainer if outlet.is_training_thread else None
        feeds_step = trainer is not None and trainer.fetch_starts()
        start_ns = perf_counter_ns()
        try:
            return self._queue.get(*args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            if trainer is not None and feeds_step:
                trainer.fetch_ends()
            if outlet is not None and watched:
                add_wait(outlet, Wait(INPUT_WAIT, self._name, start_ns, perf_counter_ns()))

    def _put(self, item: Any, *args: Any, **kwargs: Any) -> None:
        outlet = outlets.current
        start_ns = perf_counter_ns()
        try:
            self._queue.put(item, *args, **kwargs)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            if outlet is not None and outlet.takes_pipeline:
                add_wait(outlet, Wait(OUTPUT_WAIT, self._name, start_ns, perf_counter_ns()))

    def _sample(self, outlet: Outlet) -> None:
        try:
            depth = self._queue.qsize()
        except (AttributeError, NotImplementedError):  # a SimpleQueue; macOS
            return
        try:
            log = outlet.log
            log.add(QUEUE, QueueDepth(log.name(self._name), perf_counter_ns(), depth, self._capacity, outlet.step()))
        except (OSError, RuntimeError) as error:
            outlets.give_up(outlet, error)


def queue(name: str, q: Any, capacity: int | None = None) -> WatchedQueue:
    """Watch a queue of a pipeline of your own: use what is returned in its place, in threads and processes.

    `q` has `get` and `put`: a queue of `queue` or of `multiprocessing`. `capacity` is the most that it holds, by
    default what it was made with, 0 for no limit. Its depth is sampled each time an item is asked for. UsageError
    for something that is no queue.

    >>> frames = collector.queue("frames", queue.Queue(maxsize=16))
    """
    if not isinstance(name, str) or not name:
        raise UsageError(f"queue() takes the name of a queue first, not {name!r}")
    if isinstance(q, WatchedQueue):
        raise UsageError(f"queue({name!r}): this queue is watched already; use it as it is")
    if not callable(getattr(q, "get", None)) or not callable(getattr(q, "put", None)):
        raise UsageError(f"queue({name!r}) takes a queue with get and put, not {type(q).__name__}")
    if capacity is None:
        found = getattr(q, "maxsize", None) or getattr(q, "_maxsize", None) or 0
        capacity = found if 0 < found < _NO_LIMIT else 0
    return WatchedQueue(name, q, capacity)
