"""Record ranges that a script names: `record("name")`, or `push_range` and `pop_range`. They nest on each thread."""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable
from contextvars import ContextVar
from time import perf_counter_ns
from types import TracebackType
from typing import Any, TypeVar

from collector.edge import hide_frame
from collector.format.schema.errors import RangeError
from collector.format.schema.wording import CALL_RANGE, REQUEST_RANGE
from collector.marks import outlet as outlets
from collector.marks.outlet import Outlet, Trainer
from collector.ring.mark_log import (
    DEVICE_LATER,
    DEVICE_UNKNOWN,
    DROP,
    FAILED,
    LEFT_OPEN,
    NO_PARENT,
    ON_TRAINING_THREAD,
    RANGE,
    UNKNOWN,
    Drop,
    MarkLog,
    Range,
)

F = TypeVar("F", bound=Callable[..., Any])
_MOST_KEPT = 4096
BATCH_RANGE = "inference"
"""Name of a range that is a batch in a run of inference. A range with the number of a batch is a batch, too."""


class _Open:
    __slots__ = (
        *("batch", "counts_for", "id", "is_block", "is_closed", "log", "mark", "name", "number"),
        *("outlet", "parent", "start_ns", "step", "thread"),
    )

    def __init__(self, outlet: Outlet, name: str, batch: int, parent: _Open | None) -> None:
        self.outlet = outlet
        self.log: MarkLog = outlet.log
        self.name = name
        self.batch = batch
        self.is_block = self.is_closed = False
        self.parent: int = NO_PARENT if parent is None else parent.id
        self.number: int = self.log.name(name, NO_PARENT if parent is None else parent.number)
        self.id: int = outlet.next_id()
        self.thread = _local.thread
        self.step = outlet.step()
        self.mark = None if outlet.device is None else outlet.device.open(name)
        self.counts_for: Trainer | None = None
        trainer = outlet.trainer
        if (batch != UNKNOWN or name == BATCH_RANGE) and trainer is not None and outlet.is_training_thread:
            self.counts_for = trainer if trainer.batch_starts() else None
        outlet.open_ranges[self.id] = self
        self.start_ns = perf_counter_ns()

    def close(self, items: int = UNKNOWN, failed: bool = False, drop: bool = False) -> None:
        took_ns = perf_counter_ns() - self.start_ns
        if self.is_closed:  # a task of asyncio has closed what it inherited
            return
        self.is_closed = True
        self.outlet.open_ranges.pop(self.id, None)
        if self.counts_for is not None:
            self.counts_for.batch_ends(counts=not drop and items != 0)
        device = self.outlet.device if self.mark is not None else None
        if drop:
            self.log.add(DROP, Drop(self.id))
        if drop or not self.outlet.is_on:  # a range whose end lies in a pause has no duration
            if device is not None:
                device.drop(self.mark)
            return
        flags = (FAILED if failed else 0) | (DEVICE_LATER if device is not None else 0)
        if self.outlet.is_training_thread:
            flags |= ON_TRAINING_THREAD
        self._write(took_ns, items, flags)
        if device is not None:
            device.close(self.mark, self.id)

    def leave_open(self) -> None:
        self._write(perf_counter_ns() - self.start_ns, UNKNOWN, LEFT_OPEN | DEVICE_UNKNOWN)

    def _write(self, took_ns: int, items: int, flags: int) -> None:
        place = (self.id, self.parent, self.number, self.thread)
        self.log.add(RANGE, Range(*place, self.start_ns, took_ns, self.batch, items, self.step, flags))


class _Off:
    """A range that was opened while nothing was recorded."""

    __slots__ = ("is_block", "is_closed")

    def __init__(self, is_block: bool) -> None:
        self.is_block, self.is_closed = is_block, False


Entry = _Open | _Off


class _Local(threading.local):
    def __init__(self) -> None:
        self.thread = threading.get_native_id()


_local = _Local()
_stack: ContextVar[tuple[Entry, ...]] = ContextVar("stepscope ranges", default=())
"""The open ranges of this thread, or of this task of asyncio: tasks that take turns on a thread do not mix theirs."""


class Block:
    """The result of `record`: a context manager and a decorator. One stateless object serves all threads and calls."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        outlet = outlets.current
        _push(_Off(True) if outlet is None else _open(outlet, self._name, UNKNOWN, is_block=True))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        stack = _stack.get()
        at = len(stack) - 1
        while at >= 0 and not stack[at].is_block:
            at -= 1
        entry = stack[at] if at >= 0 else _Off(True)
        left_open = stack[: at if at >= 0 else None : -1]
        _stack.set(stack[: max(at, 0)])
        for inner in left_open:
            if isinstance(inner, _Open):
                inner.close(failed=True)
        if isinstance(entry, _Off):
            entry.is_closed = True
        else:
            entry.close(failed=kind is not None)
            named = [inner.name for inner in left_open if isinstance(inner, _Open)]
            if named and kind is None:
                raise RangeError(
                    f"record({self._name!r}) ends while push_range({named[0]!r}) is open inside of it: "
                    "call pop_range() before the block ends"
                )

    def __call__(self, function: F) -> F:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def call(*args: Any, **kwargs: Any) -> Any:
                try:
                    with self:
                        return await function(*args, **kwargs)
                except BaseException as error:
                    hide_frame(error)
                    raise
        else:

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> Any:
                try:
                    with self:
                        return function(*args, **kwargs)
                except BaseException as error:
                    hide_frame(error)
                    raise

        return call  # type: ignore[return-value]


_blocks: dict[str, Block] = {}


def record(name: str) -> Block:
    """Mark a range of the run, as a context manager or a decorator. An exception closes the range, marked as failed.

    Ranges nest, separately on each thread. With a CUDA device, ranges are also NVTX ranges, and their device time is
    measured. In a run of inference that no loader feeds, each range named inference is a batch, and so is each range
    for which `push_range` gets a batch number. A range named request is a request: pages and reports state latency,
    throughput, and the calls of a model inside of it. Requests may overlap, on threads and in coroutines. While nothing
    is recorded, a range costs next to nothing.
    Do not use ranges inside functions compiled by torch.compile, where a range breaks the graph. Mark the call of the
    compiled function instead. With a CUDA device, ranges of coroutines that interleave have no useful device time.

    >>> with stepscope.record("augment"):
    ...     images = augment(images)
    >>> @stepscope.record("evaluate")
    ... def evaluate(model): ...
    """
    block = _blocks.get(name)
    if block is None:
        if not isinstance(name, str):
            raise RangeError(f"record() takes the name of a range, not {name!r}")
        if len(_blocks) >= _MOST_KEPT:
            _blocks.clear()
        block = _blocks[name] = Block(name)
    return block


def push_range(name: str, batch_idx: int | None = None) -> None:
    """Open a range on this thread, until the matching `pop_range()`.

    With `batch_idx` the range is a batch, whose items `pop_range` may count. Raise RangeError if the name is no text,
    or the batch is no number from 0 on.

    >>> stepscope.push_range("inference", batch_idx=3)
    >>> stepscope.pop_range(total_items=32)
    """
    outlet = outlets.current
    if outlet is None:
        _push(_Off(False))
        return
    if not isinstance(name, str):
        raise RangeError(f"push_range() takes the name of a range, not {name!r}")
    if batch_idx is not None and not _is_count(batch_idx):
        raise RangeError(f"push_range({name!r}): batch_idx takes a number from 0 on, not {batch_idx!r}")
    _push(_open(outlet, name, UNKNOWN if batch_idx is None else int(batch_idx), is_block=False))


def pop_range(total_items: int | None = None, delete_range: bool = False) -> None:
    """Close the range that `push_range` opened last on this thread.

    `total_items` is the number of items in the batch; a batch with 0 items marks the end of the data and is left out.
    With `delete_range` the range and all ranges opened inside it are left out. Raise RangeError, and leave the range
    open, if no range is open, or items are given for a range without a batch.
    """
    stack = _stack.get()
    if not stack:
        if outlets.current is None:
            return
        stack = _list_pushed_here(outlets.current)
    if not stack:
        raise RangeError("pop_range() without a push_range() before it on this thread: every pop needs its push")
    entry = stack[-1]
    if isinstance(entry, _Open):
        if entry.is_block:
            raise RangeError(
                f"pop_range() without a push_range() inside of record({entry.name!r}): the block closes itself"
            )
        if total_items is not None:
            _check_items(entry, total_items)
        entry.close(UNKNOWN if total_items is None else int(total_items), drop=delete_range)
    if not entry.is_block:
        entry.is_closed = True
        _stack.set(stack[:-1])


def _push(entry: Entry) -> None:
    stack = _stack.get()
    # A callback or a task of asyncio inherits open ranges that close elsewhere. One that begins the next one would
    # collect them without end.
    while stack and stack[-1].is_closed:
        stack = stack[:-1]
    _stack.set((*stack, entry))


def _list_pushed_here(outlet: Outlet) -> tuple[Entry, ...]:
    """Return the last open range that push_range() opened on this thread, in a task of asyncio that has ended."""
    pushed = [each for each in tuple(outlet.open_ranges.values()) if not each.is_block and each.thread == _local.thread]
    return tuple(pushed[-1:])


def _open(outlet: Outlet, name: str, batch: int, is_block: bool) -> Entry:
    if not outlet.is_on:
        begun = outlets.begin(outlet)
        if begun is None:
            return _Off(is_block)
        outlet = begun
    try:
        above = _find_innermost()
        entry = _Open(outlet, name, batch, above if above is not None and above.log is outlet.log else None)
    except (OSError, RuntimeError) as error:
        outlets.give_up(outlet, error)
        return _Off(is_block)
    entry.is_block = is_block
    return entry


def _find_innermost() -> _Open | None:
    return next((entry for entry in reversed(_stack.get()) if isinstance(entry, _Open) and not entry.is_closed), None)


def add_call(began_ns: int, always: bool = False) -> None:
    """Write a call of a model that began at `began_ns` and ends now, as a range inside of the open ranges. Without an
    open request, write it only if `always` is True.
    """
    took_ns = perf_counter_ns() - began_ns
    stack = _stack.get()
    outlet = outlets.current
    if outlet is None or not outlet.is_on or not (always or stack):
        return
    is_inside = any(isinstance(each, _Open) and each.name == REQUEST_RANGE and not each.is_closed for each in stack)
    if not always and not is_inside:
        return
    try:
        log, above = outlet.log, _find_innermost()
        parent, number = (above.id, above.number) if above is not None and above.log is log else (NO_PARENT, NO_PARENT)
        flags = ON_TRAINING_THREAD if outlet.is_training_thread else 0
        place = (outlet.next_id(), parent, log.name(CALL_RANGE, number), _local.thread)
        log.add(RANGE, Range(*place, began_ns, took_ns, UNKNOWN, UNKNOWN, outlet.step(), flags))
    except (OSError, RuntimeError) as error:
        outlets.give_up(outlet, error)


def close_left_open(outlet: Outlet) -> list[str]:
    """Write the ranges still open at the end of the recording; return the names of those that push_range() opened."""
    left = [outlet.open_ranges.pop(number) for number in sorted(outlet.open_ranges, reverse=True)]
    for entry in left:
        entry.leave_open()
    return [entry.name for entry in reversed(left) if not entry.is_block]


def _check_items(entry: _Open, items: object) -> None:
    if entry.batch == UNKNOWN:
        raise RangeError(
            f"pop_range(total_items={items!r}): the range {entry.name!r} is no batch; "
            "give push_range() a batch_idx, or pop without total_items"
        )
    if not _is_count(items):
        raise RangeError(f"pop_range() of {entry.name!r}: total_items takes a number from 0 on, not {items!r}")


def _is_count(value: object) -> bool:
    return not isinstance(value, bool) and hasattr(value, "__index__") and value.__index__() >= 0


def _begin_child() -> None:
    """Forget the parent's open ranges in a forked process, so that the child does not write them, too."""
    _stack.set(tuple(_Off(entry.is_block) for entry in _stack.get()))
    _local.thread = threading.get_native_id()


os.register_at_fork(after_in_child=_begin_child)
