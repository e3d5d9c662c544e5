"""Record the DataLoader as the training thread sees it: fetches, starts of iterators, and queue depths.

Each fetch reads the queue depths from counters of the iterator, in constant time.
"""

from __future__ import annotations

import multiprocessing
import operator
import queue
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data import dataloader as module

from collector.context.hooks import bind, make_span_hook
from collector.context.loaders import count_samples
from collector.context.signals import Signal, SignalContext
from collector.edge import hide_frame, hide_frames, uncounted, unseen
from collector.ring.codes import (
    BATCH,
    FETCH_END,
    FETCH_START,
    FETCH_STOP,
    LOADER,
    LOADER_READY,
    LOADER_START,
    QUEUE,
    SAMPLES,
)
from collector.ring.packing import MOST_DEPTH, NOT_READY, READY, READY_UNKNOWN, pack_fetch, pack_queues

_OWN = "_stepscope"


class LoaderSignal(Signal):
    name = "loader"

    def __init__(self) -> None:
        self._reads = [False]

    def install(self, context: SignalContext) -> None:
        self._context = context
        self._reads[0] = context.options.data_pipeline
        iterator = module._BaseDataLoaderIter
        context.undo.patch(iterator, _OWN, 0xFFFF)  # for those that were made before
        context.undo.patch(iterator, "__init__", self._make_init(iterator.__init__))
        context.undo.patch(iterator, "_reset", self._make_reset(iterator._reset))
        context.undo.patch(iterator, "__next__", self._make_next(iterator.__next__))
        hook = make_span_hook(
            context.log, DataLoader.__iter__, LOADER_START, LOADER_READY, lambda loader: context.steps.fetch_starts()
        )
        context.undo.patch(DataLoader, "__iter__", hook)

    def rehearse(self, context: SignalContext) -> dict[str, Callable[[], object]]:
        self._context = context
        self._reads[0] = True
        batch = [torch.zeros(2), torch.zeros(2)]
        iterator = _StandIn()
        hook = self._make_next(lambda iterator: batch)
        return {"fetch": lambda: hook(iterator)}

    def remove(self) -> None:
        self._reads[0] = False

    def _fail_queues(self, error: Exception) -> None:
        if self._reads[0]:
            self._reads[0] = False
            self._context.fail_signal("data_pipeline", error)

    def _make_init(self, original: Any) -> Any:
        @uncounted
        def __init__(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            self._begin_epoch(iterator, loader)
            with unseen:
                original(iterator, loader, *args, **kwargs)

        return __init__

    def _make_reset(self, original: Any) -> Any:
        @uncounted
        def _reset(iterator: Any, loader: Any, first_iter: bool = False) -> None:
            if not first_iter:
                self._begin_epoch(iterator, loader)
            with unseen:
                original(iterator, loader, first_iter)

        return _reset

    def _begin_epoch(self, iterator: Any, loader: Any) -> None:
        loaders = self._context.loaders
        with self._context.shielded(self.name):
            epoch = loaders.begin_epoch(loader)
            setattr(iterator, _OWN, pack_fetch(epoch, loaders.number(loader)))
            remade = loaders.remade(loader)
            if epoch == 1 or remade:
                self._context.add_loader({**_describe_loader(loaders.number(loader), loader), "remade": remade})

    def _make_next(self, original: Any) -> Any:
        log, steps = self._context.log, self._context.steps
        words, mask, following, thread, now, get_ident = bind(log)
        reads, read_queues, number_batch, count = self._reads, _read_queues, _number_batch, count_samples
        starts, fail, Tensor = steps.fetch_starts, self._fail_queues, torch.Tensor
        watchers, come_back = self._context.call_watchers, self._context.come_back

        @uncounted
        def __next__(iterator: Any) -> Any:
            if get_ident() != thread[0] and not come_back():
                with unseen:
                    return original(iterator)
            try:
                starts(getattr(iterator, _OWN, 0))
            except BaseException as error:
                hide_frames(error)
                raise
            try:
                words[following() & mask] = iterator._stepscope + LOADER
                if reads[0] and iterator._num_workers:
                    words[following() & mask] = read_queues(iterator) + QUEUE
            except Exception as error:  # noqa: BLE001  an edge: private fields differ between versions and subclasses
                fail(error)
            words[following() & mask] = now() + FETCH_START
            try:
                batch = original(iterator)
            except StopIteration:
                words[following() & mask] = now() + FETCH_STOP
                steps.fetch_stops()
                raise
            except BaseException as error:
                words[following() & mask] = now() + FETCH_STOP
                hide_frame(error)
                raise
            words[following() & mask] = number_batch(iterator) + BATCH
            words[following() & mask] = now() + FETCH_END
            # The usual batch is looked at here, and asked one thing only: each function more, and each attribute of a
            # tensor, would have to come into the processor's caches.
            try:
                sizes: Any = first.shape if type(batch) is list and batch and type(first := batch[0]) is Tensor else ()
            except Exception:  # noqa: BLE001  an edge: a nested tensor has none, a mode of the user's may refuse
                sizes = ()
            if len(sizes) > 1 or (sizes and getattr(iterator, "_auto_collation", True)):
                words[following() & mask] = sizes[0] + SAMPLES
            else:
                words[following() & mask] = count(batch, collated=getattr(iterator, "_auto_collation", True)) + SAMPLES
            if watchers:
                with unseen:
                    watchers[0](0, iterator, batch, None)
            return batch

        return __next__


class _StandIn:
    """A fake iterator with the private fields that `_read_queues` reads; it serves to time the reading."""

    def __init__(self) -> None:
        self._stepscope, self._num_yielded, self._num_workers, self._pin_memory = 0, 0, 2, False
        self._task_info: dict[int, Any] = {0: (0,)}
        self._tasks_outstanding, self._rcvd_idx = 1, 0
        self._worker_result_queue = queue.SimpleQueue[int]()


def _read_queues(iterator: Any) -> int:
    """Return the payload of the word QUEUE: whether the next batch is ready, and how many batches are in each state."""
    ready: int = iterator._worker_result_queue.qsize()
    pinned: int = iterator._data_queue.qsize() if iterator._pin_memory else 0
    tasks: dict[int, Any] = iterator._task_info
    outstanding: int = iterator._tasks_outstanding
    waiting = len(tasks) - outstanding
    if waiting and len(tasks.get(iterator._rcvd_idx, ())) == 2:
        state = READY  # received before its turn
    elif not (ready or pinned):
        state = NOT_READY
    elif iterator._num_workers == 1 or ready + pinned >= outstanding:
        state = READY
    else:
        state = READY_UNKNOWN  # a queue does not show which batches are in it
    if ready | pinned | outstanding | waiting > MOST_DEPTH or waiting < 0:
        ready, pinned, outstanding = min(ready, MOST_DEPTH), min(pinned, MOST_DEPTH), min(outstanding, MOST_DEPTH)
        waiting = min(max(waiting, 0), MOST_DEPTH)
    return pack_queues(state, waiting, outstanding, ready, pinned)


def _number_batch(iterator: Any) -> int:
    """Return the number of the batch that was just fetched, as in the rows of the workers. It counts from 0, and is
    also 0 if it is unknown.

    The count of yielded batches may differ from this number: a worker without further samples leaves gaps, and
    `in_order=False` changes the order.
    """
    try:
        if not iterator._num_workers:
            number: int = iterator._num_yielded - 1
        elif type(iterator._task_info) is dict:
            number = iterator._rcvd_idx - 1
        else:
            number = iterator._task_info.last_taken
    except AttributeError:  # an iterator of another class
        return 0
    return number if number > 0 else 0


def _describe_loader(number: int, loader: Any) -> dict[str, Any]:
    iterable = isinstance(loader.dataset, IterableDataset)
    workers = int(loader.num_workers)
    sampler = loader.sampler
    shuffle = True if isinstance(sampler, RandomSampler) else False if isinstance(sampler, SequentialSampler) else None
    return {
        "id": number,
        "dataset": type(loader.dataset).__name__,
        "style": "iterable" if iterable else "map",
        "batch_size": _read_integer(loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)),
        "num_workers": workers,
        "prefetch_factor": _read_integer(loader.prefetch_factor) if workers else None,
        "pin_memory": bool(loader.pin_memory),
        "pins": bool(loader.pin_memory) and torch.accelerator.is_available(),
        "persistent_workers": bool(loader.persistent_workers),
        "in_order": bool(getattr(loader, "in_order", True)),
        "shuffle": None if iterable else shuffle,
        "length_batches": None if iterable else _count_batches(loader),
        "start_method": _find_start_method(loader) if workers else None,
    }


def _count_batches(loader: Any) -> int | None:
    try:
        return len(loader)
    except (TypeError, NotImplementedError):
        return None


def _read_integer(value: Any) -> int | None:
    """Return a value of any integer type, such as NumPy's, as an int; None for other values."""
    try:
        return operator.index(value)
    except TypeError:
        return None


def _find_start_method(loader: Any) -> str:
    context = loader.multiprocessing_context
    return str((context if context is not None else multiprocessing).get_start_method())


SIGNAL = LoaderSignal
