"""Wrap a script's queues and input iterables so that waits for them are recorded. The script uses them as before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from time import perf_counter_ns
from typing import Any, Generic, TypeVar

from collector.edge import hide_frame, unseen
from collector.format.schema.errors import UsageError
from collector.marks import outlet as outlets
from collector.marks.outlet import Outlet
from collector.marks.stages import INPUT_WAIT, OUTPUT_WAIT, Wait, add_wait
from collector.ring.mark_log import QUEUE, QueueDepth

T = TypeVar("T")
_NO_LIMIT = 1 << 30
"""Capacity from which a queue counts as unlimited: multiprocessing gives such queues the largest semaphore value."""
_DATA_LOADERS = ("torch.utils.data.dataloader", "torchdata.nodes.loader")


class WatchedQueue:
    """The user's queue with timed `get` and `put`; all else is the queue's own. It can be sent to other processes."""

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

    def put(self, item: Any, *args: Any, **kwargs: Any) -> None:
        """Put an item, as the queue's own `put` does."""
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

    def get_nowait(self) -> Any:
        """Return the next item if there is one, as the queue's own `get_nowait` does."""
        with unseen:
            return self.get(block=False)

    def put_nowait(self, item: Any) -> None:
        """Put an item if there is room, as the queue's own `put_nowait` does."""
        with unseen:
            self.put(item, block=False)

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
    """Watch a queue of your own pipeline. Use the returned queue instead of `q`, in threads and processes.

    `q` has `get` and `put`: a queue of `queue` or of `multiprocessing`. `capacity` is the most items that the queue
    holds, 0 for no limit; the default is the limit of `q`. The depth is sampled each time an item is requested. Raise
    UsageError if `q` is no queue.

    >>> frames = stepscope.queue("frames", queue.Queue(maxsize=16))
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


class Watched(Generic[T]):
    """The user's iterable. On the training thread, the time until each item comes is recorded; all else is its own."""

    def __init__(self, iterable: Iterable[T], name: str) -> None:
        self._iterable = iterable
        self._name = name

    def __iter__(self) -> Iterator[T]:
        outlet = outlets.current
        trainer = None if outlet is None or not outlet.is_training_thread else outlet.trainer
        with unseen:
            if trainer is None or _is_seen_anyway(self._iterable):
                return iter(self._iterable)
            return trainer.iterate(self._iterable, self._name)

    def __aiter__(self) -> _Awaited:
        with unseen:
            return _Awaited(type(self._iterable).__aiter__(self._iterable))  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return bool(self._iterable)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterable, name)


class _Awaited:
    """Items of the user's asynchronous iterable. On the training thread, the time until each comes is recorded."""

    def __init__(self, items: Any) -> None:
        self._items = items

    def __aiter__(self) -> _Awaited:
        return self

    async def __anext__(self) -> Any:
        outlet = outlets.current
        trainer = outlet.trainer if outlet is not None and outlet.is_training_thread else None
        if trainer is not None:
            trainer.read_starts()
        try:
            return await self._items.__anext__()
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            if trainer is not None:
                trainer.read_ends()


def watch(iterable: Iterable[T], name: str = "") -> Watched[T]:
    """Watch training input that is no DataLoader: the time until each item arrives is data wait.

    The returned iterable yields the same items. A generator, an iterator or any iterable will do, for `async for` too:
    of that, only the time is recorded. `name` is the name on
    the pages; the default is the name of the generator's function or of the class. Start the iteration while the run is
    recorded, on the training thread. A DataLoader needs no `watch`, not even inside the iterable if it runs on that
    thread. Raise UsageError if the argument is not iterable, or the name is no text.

    >>> for batch in stepscope.watch(read_batches()):
    ...     train(batch)
    """
    if not isinstance(name, str):
        raise UsageError(f"watch() takes the name of the input as text, not {name!r}")
    if not any(hasattr(type(iterable), name) for name in ("__iter__", "__getitem__", "__aiter__")):
        raise UsageError(f"watch() takes something to iterate over, not {type(iterable).__name__}")
    return Watched(iterable, name or str(getattr(iterable, "__qualname__", type(iterable).__qualname__)))


def _is_seen_anyway(iterable: object) -> bool:
    return any(kind.__module__ in _DATA_LOADERS for kind in type(iterable).__mro__)
