"""Where batches are made: the time of each stage in the DataLoader's workers, in the pin thread, and without workers.

While an iterator is made, the functions that its processes and its thread will run are exchanged for ours, which call
them. Nothing of the user's is wrapped here; what is wrapped in a worker is wrapped there (`collector.workers`).
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from torch.utils.data import dataloader as module
from torch.utils.data._utils import pin_memory as pin_module
from torch.utils.data._utils import worker as worker_module

from collector.context.signals import Signal, SignalContext
from collector.edge import unseen
from collector.ring.stage_log import StageLog
from collector.workers.entry import WorkerEntry, WorkerPlan
from collector.workers.fetching import FetchHere
from collector.workers.queues import PinEntry

STEPS_TO_LOOK = 3


class WorkersSignal(Signal):
    name = "workers"
    option = "data_pipeline"

    def install(self, context: SignalContext) -> None:
        self._context = context
        self._pid = os.getpid()
        self._is_on = True
        self._lock = threading.RLock()
        self._log: StageLog | None = None
        self._fetches: weakref.WeakSet[FetchHere] = weakref.WeakSet()
        self._has_stateful = False
        self._patch(module._MultiProcessingDataLoaderIter, module._SingleProcessDataLoaderIter, worker_module)
        self._look_for_stateful()
        context.boundaries.append(self._on_step)

    def remove(self) -> None:
        """Stop; workers that run go on to write, their iterator ends them."""
        self._is_on = False
        for fetch in list(self._fetches):
            fetch.detach()
        if self._log is not None:
            self._log.close()

    def _on_step(self, step: int) -> None:
        """Look again: the script may have imported torchdata after the recording had begun."""
        self._look_for_stateful()
        if step >= STEPS_TO_LOOK:
            self._context.boundaries.remove(self._on_step)

    def _look_for_stateful(self) -> None:
        stateful: Any = sys.modules.get("torchdata.stateful_dataloader.stateful_dataloader")
        if stateful is not None and not self._has_stateful:
            self._has_stateful = True
            kinds = stateful._StatefulMultiProcessingDataLoaderIter, stateful._StatefulSingleProcessDataLoaderIter
            self._patch(*kinds, stateful)

    def _patch(self, with_workers: Any, without: Any, holder: Any) -> None:
        """Patch the iterators of a loader; its iterator starts `holder._worker_loop` in its workers."""
        undo = self._context.undo
        undo.patch(with_workers, "__init__", self._make_init_with_workers(with_workers.__init__, holder))
        undo.patch(with_workers, "_reset", self._make_reset(with_workers._reset))
        undo.patch(without, "__init__", self._make_init_without(without.__init__))

    def _is_here(self) -> bool:
        # Not in a process that was forked from the one that trains.
        return self._is_on and os.getpid() == self._pid

    def _make_init_with_workers(self, original: Any, holder: Any) -> Any:
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
        def _reset(iterator: Any, *args: Any, **kwargs: Any) -> None:
            with unseen:
                original(iterator, *args, **kwargs)
            if self._is_here() and not getattr(iterator, "_in_order", True):
                iterator._task_info = _Tasks(iterator._task_info)

        return _reset

    def _make_init_without(self, original: Any) -> Any:
        def __init__(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
            with unseen:
                original(iterator, loader, *args, **kwargs)
            if self._is_here():
                with self._context.shielded(self.name):
                    self._watch(iterator, loader)

        return __init__

    def _stand_in(self, loader: Any, holder: Any) -> Callable[[], None]:
        """Exchange the worker's loop and the pin thread's loop; return what puts both back."""
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
        """Return the log of this process, made at its first use. OSError if there is no room."""
        with self._lock:
            if self._log is None:
                ring = self._context.events / f"stages-main-{os.getpid()}-{time.perf_counter_ns()}.ring"
                self._log = StageLog(ring, replica=-1)
            return self._log


class _Tasks(dict[int, Any]):
    """The tasks of an iterator that hands batches out as they come: remembers which was taken last."""

    last_taken = 0

    def pop(self, key: int) -> Any:  # type: ignore[override]
        self.last_taken = key
        return super().pop(key)


SIGNAL = WorkersSignal
