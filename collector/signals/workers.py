"""Record how batches are made: the choice of samples, and the stages in workers, pin thread, or training process."""

from __future__ import annotations

import functools
import logging
import os
import sys
import threading
import weakref
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from torch.utils.data import IterableDataset
from torch.utils.data import dataloader as module
from torch.utils.data._utils import pin_memory as pin_module
from torch.utils.data._utils import worker as worker_module

from collector.context.signals import Signal, SignalContext
from collector.edge import hide_frame, log_failure, uncounted, unseen
from collector.ring.stage_log import StageLog
from collector.workers.entry import WorkerEntry, WorkerPlan
from collector.workers.fetching import FetchHere
from collector.workers.queues import PinEntry

_STATEFUL = "torchdata.stateful_dataloader.stateful_dataloader"
MOST_SAMPLERS = 32
TIMED_FIRST = 64
"""Number of calls of the sampler, from the start of an epoch, that are all timed."""
PERIOD = 7
"""Interval of timed calls after those; a prime, so that every eighth call is not always missed."""


class SamplerSums:
    """Sums of the durations of calls to the sampler of one loader, over all epochs. Only some calls are timed.

    The first call of an epoch has its own sum, because it may shuffle the whole data set.
    """

    __slots__ = ("batches", "epochs", "first_ns", "kind", "longest_ns", "rest_ns")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.epochs = self.batches = self.first_ns = self.rest_ns = self.longest_ns = 0

    def describe(self, loader: int) -> dict[str, Any]:
        """Return a loader's entry in the fact `samplers`.

        `first_ns` is the total time of the first calls of `epochs` epochs. `rest_ns` is the total time of `batches`
        other timed calls, `longest_ns` the time of the longest of these.
        """
        return {"loader": loader, **{name: getattr(self, name) for name in self.__slots__}}


class TimedSampler:
    """An iterator over a sampler that adds the times of its first calls, then of every seventh call, to the sums."""

    __slots__ = ("_advance", "_calls", "_left", "_sums")

    def __init__(self, iterator: Any, sums: SamplerSums) -> None:
        self._advance = iterator.__next__
        self._sums = sums
        self._calls = 0
        self._left = 0

    def __iter__(self) -> TimedSampler:
        return self

    @uncounted
    def __next__(self) -> Any:
        try:
            if left := self._left:
                self._left = left - 1
                return self._advance()
            return self._time()
        except BaseException as error:
            hide_frame(error)
            raise

    @uncounted
    def _time(self) -> Any:
        before = perf_counter_ns()
        try:
            index = self._advance()
        except BaseException as error:
            hide_frame(error)
            raise
        took_ns, sums = perf_counter_ns() - before, self._sums
        if self._calls:
            sums.rest_ns += took_ns
            sums.batches += 1
            if took_ns > sums.longest_ns:
                sums.longest_ns = took_ns
        else:
            sums.first_ns += took_ns
            sums.epochs += 1
        self._calls += 1
        if self._calls > TIMED_FIRST:
            self._left = PERIOD - 1
        return index


class SamplerSignal(Signal):
    """The signal of the time in which the sampler chooses the samples of a batch, on the training thread.

    The iterator over the sampler is replaced by one that times its first calls and then every seventh, at 0.2 µs a
    call. The sums are a fact of the run, saved now and then. Iterators of other libraries are left alone.
    """

    name = "sampler"
    option = "data_pipeline"

    def install(self, context: SignalContext) -> None:
        self._context = context
        self._sums: dict[int, SamplerSums] = {}
        self._kinds = (module._SingleProcessDataLoaderIter, module._MultiProcessingDataLoaderIter)
        iterator = module._BaseDataLoaderIter
        context.undo.patch(iterator, "__init__", self._make_hook(iterator.__init__))
        context.undo.patch(iterator, "_reset", self._make_hook(iterator._reset))
        context.save_now_and_then(self.name, self._save)

    def _save(self) -> None:
        if self._sums:
            self._context.add_fact("samplers", [sums.describe(loader) for loader, sums in self._sums.items()])

    def _make_hook(self, original: Any) -> Any:
        @functools.wraps(original)
        @uncounted
        def hook(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            with unseen:
                original(iterator, loader, *args, **kwargs)
            with log_failure("the sampler of a loader is not timed", level=logging.DEBUG):
                self._watch(iterator, loader)

        return hook

    def _watch(self, iterator: Any, loader: Any) -> None:
        if type(iterator) not in self._kinds or isinstance(loader.dataset, IterableDataset):
            return
        sampler = getattr(iterator, "_sampler_iter", None)
        if sampler is None or type(sampler) is TimedSampler:
            return
        number = self._context.loaders.number(loader)
        if number not in self._sums and len(self._sums) >= MOST_SAMPLERS:
            return
        sums = self._sums.setdefault(number, SamplerSums(_name_sampler(loader)))
        iterator._sampler_iter = TimedSampler(sampler, sums)


def _name_sampler(loader: Any) -> str:
    """Return the class name of the batch sampler if it is the user's own; otherwise the class name of the sampler."""
    batches = loader.batch_sampler
    own = batches is not None and type(batches).__module__ != "torch.utils.data.sampler"
    return type(batches if own else loader.sampler).__name__


class WorkersSignal(Signal):
    """The signal of stage times, from the places where batches are made.

    While an iterator is made, wrappers replace the functions for its processes and its thread. The user's objects are
    not wrapped here; workers wrap them (`collector.workers`).
    """

    name = "workers"
    option = "data_pipeline"

    def install(self, context: SignalContext) -> None:
        self._context = context
        self._pid = os.getpid()
        self._is_on = True
        self._lock = threading.RLock()
        self._log: StageLog | None = None
        self._fetches: weakref.WeakSet[FetchHere] = weakref.WeakSet()
        self._patch(module._MultiProcessingDataLoaderIter, module._SingleProcessDataLoaderIter, worker_module)
        context.when_imported(_STATEFUL, self._patch_stateful)

    def remove(self) -> None:
        """Stop recording. Running workers go on writing until their iterator ends."""
        self._is_on = False
        for fetch in list(self._fetches):
            fetch.detach()
        if self._log is not None:
            self._log.close()

    def _patch_stateful(self) -> None:
        with log_failure("how a StatefulDataLoader makes its batches is not recorded"):
            stateful: Any = sys.modules[_STATEFUL]
            kinds = stateful._StatefulMultiProcessingDataLoaderIter, stateful._StatefulSingleProcessDataLoaderIter
            self._patch(*kinds, stateful)

    def _patch(self, with_workers: Any, without: Any, holder: Any) -> None:
        """Patch the iterator classes of one kind of loader: the one with workers, and the one without. `holder` is the
        module that has its `_worker_loop`.
        """
        undo = self._context.undo
        undo.patch(with_workers, "__init__", self._make_init_with_workers(with_workers.__init__, holder))
        undo.patch(with_workers, "_reset", self._make_reset(with_workers._reset))
        undo.patch(without, "__init__", self._make_init_without(without.__init__))

    def _is_here(self) -> bool:
        # Not in a process that was forked from the one that trains.
        return self._is_on and os.getpid() == self._pid

    def _make_init_with_workers(self, original: Any, holder: Any) -> Any:
        @uncounted
        def __init__(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            with unseen:
                if not self._is_here():
                    original(iterator, loader, *args, **kwargs)
                    return
                with self._lock:
                    put_back = self._stand_in(loader, holder)
                    try:
                        original(iterator, loader, *args, **kwargs)
                    finally:
                        put_back()

        return __init__

    def _make_reset(self, original: Any) -> Any:
        @uncounted
        def _reset(iterator: Any, *args: Any, **kwargs: Any) -> None:
            with unseen:
                original(iterator, *args, **kwargs)
            if self._is_here() and not getattr(iterator, "_in_order", True):
                iterator._task_info = _Tasks(iterator._task_info)

        return _reset

    def _make_init_without(self, original: Any) -> Any:
        @uncounted
        def __init__(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            with unseen:
                original(iterator, loader, *args, **kwargs)
            if self._is_here():
                with self._context.shielded(self.name):
                    self._watch(iterator, loader)

        return __init__

    def _stand_in(self, loader: Any, holder: Any) -> Callable[[], None]:
        """Replace the loops of the workers and the pin thread by recording ones. Return a function that undoes it."""
        loop, pin_loop = holder._worker_loop, pin_module._pin_memory_loop

        def put_back() -> None:
            holder._worker_loop, pin_module._pin_memory_loop = loop, pin_loop

        with self._context.shielded(self.name):
            plan = self._plan(loader)
            holder._worker_loop = WorkerEntry(loop, plan)
            if loader.pin_memory:
                pin_module._pin_memory_loop = PinEntry(pin_loop, self._open_log(), plan.loader, plan.epoch)
        return put_back

    def _plan(self, loader: Any) -> WorkerPlan:
        loaders = self._context.loaders
        # The epoch that is about to begin: it is counted inside of the constructor that is about to run.
        place = loaders.number(loader), loaders.epoch(loader) + 1
        return WorkerPlan(str(self._context.events), *place, self._context.stack_reader)

    def _watch(self, iterator: Any, loader: Any) -> None:
        loaders = self._context.loaders
        fetcher = iterator._dataset_fetcher
        place = loaders.number(loader), loaders.epoch(loader)
        fetch = FetchHere(fetcher, self._open_log(), place, self._context.log.thread)
        self._fetches.add(fetch)

    def _open_log(self) -> StageLog:
        with self._lock:
            if self._log is None:
                ring = self._context.events / f"stages-main-{os.getpid()}-{perf_counter_ns()}.ring"
                self._log = StageLog(ring, replica=-1)
            return self._log


class _Tasks(dict[int, Any]):
    """The tasks of an iterator that returns batches out of order; it remembers the task taken last."""

    last_taken = 0

    def pop(self, key: int) -> Any:  # type: ignore[override]
        self.last_taken = key
        return super().pop(key)


SIGNAL = (SamplerSignal, WorkersSignal)
