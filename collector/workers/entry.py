"""The function that a DataLoader worker runs in place of torch's loop. It installs clocks, which time how the worker
makes and sends batches, and then runs torch's loop.

If the clocks fail, the failure is logged once and the worker goes on without clocks.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import multiprocessing.util
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter_ns, thread_time_ns
from typing import Any

from collector.edge import log_failure, uncounted, unseen
from collector.frames.posting import post_thread
from collector.ring.stage_log import KINDS, SEND, SPAN, STAGES, UNKNOWN, Span, StageLog
from collector.workers.fetching import FetchProbe, Place
from collector.workers.queues import SendProbe
from collector.workers.tally import Guard

_READ = STAGES.index("read")
# This runs after the queue's thread was joined (priority -5), so that the last batch is counted.
_EXIT_PRIORITY = -50
_END_OF_SAMPLES = "_IterableDatasetStopIteration"


@dataclass(frozen=True)
class WorkerPlan:
    """Where a worker writes, its loader and epoch, who reads its stacks (0: nobody), when it was asked (0: forked)."""

    events: str
    loader: int
    epoch: int
    stack_reader: int = 0
    asked_ns: int = 0


class WorkerEntry:
    """The replacement for torch's `_worker_loop`, in place only while an iterator is made. A call runs the worker."""

    def __init__(self, original: Callable[..., Any], plan: WorkerPlan) -> None:
        self._original = original
        self._plan = plan

    def __reduce__(self) -> tuple[Any, ...]:
        # Passed by name: the function itself cannot be pickled while this object replaces it.
        plan = replace(self._plan, asked_ns=perf_counter_ns())
        return _restore_entry, (self._original.__module__, self._original.__qualname__, plan)

    @uncounted
    def __call__(self, *args: Any) -> Any:
        original = self._original
        setattr(sys.modules[original.__module__], original.__qualname__, original)
        with unseen:
            return run_worker(original, self._plan, args)


def _restore_entry(module: str, name: str, plan: WorkerPlan) -> WorkerEntry:
    return WorkerEntry(getattr(importlib.import_module(module), name), plan)


@uncounted
def run_worker(original: Callable[..., Any], plan: WorkerPlan, args: tuple[Any, ...]) -> Any:
    """Run torch's loop with clocks around it, or without clocks if they cannot be installed."""
    silence_inherited_profiler()
    with log_failure("worker %s is not profiled", os.getpid()):
        given = inspect.signature(original).bind(*args).arguments
        WorkerSession(plan, given)
    if plan.stack_reader:
        with log_failure("the stacks of worker %s are not read", os.getpid(), level=logging.DEBUG):
            number = inspect.signature(original).bind(*args).arguments["worker_id"]
            post_thread(Path(plan.events), number, plan.loader, plan.stack_reader)
    with unseen:
        return original(*args)


def silence_inherited_profiler() -> None:
    """Stop a profiler that was on when this process was forked: nobody would collect what it records here."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.autograd._profiler_enabled():
        torch._C._autograd._enable_record_function(False)
        sys.setprofile(None)


class WorkerSession:
    """The clocks of one worker: on its index queue, its fetcher and its result queue."""

    def __init__(self, plan: WorkerPlan, given: Mapping[str, Any]) -> None:
        self._plan = plan
        self._epoch = plan.epoch
        self._started_ns = perf_counter_ns()
        self._free_ns = 0
        self._picked_ns = 0
        self._cleanup_start_ns = 0
        self._probe: FetchProbe | None = None
        self._dataset = given["dataset"]
        self._queues: tuple[Any, ...] = ()
        self._guard = Guard(f"worker {given['worker_id']}", self._give_up)
        worker = given["worker_id"]
        ring = f"stages-{plan.loader}-{plan.epoch}-{worker}-{os.getpid()}-{self._started_ns}.ring"
        self._log = StageLog(Path(plan.events) / ring, worker)
        self._watch_fetchers()
        self._watch_queues(given["index_queue"], given["data_queue"])
        multiprocessing.util.Finalize(None, self._finish, exitpriority=_EXIT_PRIORITY)

    def _watch_fetchers(self) -> None:
        kinds = sys.modules["torch.utils.data"]._DatasetKind
        create = kinds.create_fetcher

        @uncounted
        def create_fetcher(kind: Any, dataset: Any, *rest: Any) -> Any:
            fetcher = create(kind, dataset, *rest)
            if dataset is self._dataset:  # not the fetcher of a loader inside the user's dataset
                self._guard.run(self._attach, fetcher)
            return fetcher

        kinds.create_fetcher = staticmethod(create_fetcher)

    def _watch_queues(self, index_queue: Any, data_queue: Any) -> None:
        try:
            self._sends: SendProbe | None = SendProbe(data_queue)
        except AttributeError as error:
            self._sends = None
            self._log.note(f"what is sent to the training process is not timed: {error}")
        self._queues = (index_queue, data_queue)
        wait, hand_over = index_queue.get, data_queue.put

        @uncounted
        def get(*args: Any, **kwargs: Any) -> Any:
            if not self._free_ns:
                self._guard.run(self._end_setup)
            message = wait(*args, **kwargs)
            self._guard.run(self._pick, message)
            return message

        @uncounted
        def put(message: Any, *args: Any, **kwargs: Any) -> None:
            self._guard.run(self._stop, message)
            hand_over(message, *args, **kwargs)
            self._guard.run(self._write, message)

        index_queue.get, data_queue.put = get, put

    def _give_up(self, error: Exception) -> None:
        for queue, name in zip(self._queues, ("get", "put"), strict=False):
            vars(queue).pop(name, None)
        if self._probe is not None:
            self._probe.detach()
        self._log.note(f"a worker was not profiled to its end: {error!r}")

    def _attach(self, fetcher: Any) -> None:
        if self._probe is not None:
            self._probe.detach()
        self._probe = FetchProbe(fetcher, self._dataset, self._log)

    def _end_setup(self) -> None:
        self._free_ns = perf_counter_ns()
        # A forked worker starts here; a spawned one started when its parent pickled the plan, and has imported since.
        start_ns = self._plan.asked_ns or self._started_ns
        self._add_span("setup", start_ns, self._free_ns - start_ns)

    def _pick(self, message: Any) -> None:
        self._picked_ns = perf_counter_ns()
        if message is None:
            self._cleanup_start_ns = self._picked_ns
        elif type(message).__name__ == "_ResumeIteration":
            self._epoch += 1
        elif self._probe is not None and isinstance(message, tuple):
            _, index = message
            if isinstance(index, tuple) and len(index) == 2 and isinstance(index[1], bool):
                index = index[0]  # StatefulDataLoader asks for the worker's state along with it
            self._probe.begin(len(index) if hasattr(index, "__len__") else 1, self._probe.rhythm.is_due())

    def _stop(self, message: Any) -> None:
        if self._probe is not None and isinstance(message[0], int):
            self._probe.end()
        if self._sends is not None:
            self._sends.expect(self._place(message))

    def _write(self, message: Any) -> None:
        place = self._place(message)
        if place is not None:
            if self._probe is not None:
                self._probe.write(Place(*place, self._free_ns, self._picked_ns))
            self._free_ns = perf_counter_ns()
        self._write_sends()

    def _place(self, message: Any) -> tuple[int, int, int] | None:
        batch, data = message
        if isinstance(data, tuple) and data:
            data = data[0]  # StatefulDataLoader sends the worker and its state along
        if not isinstance(batch, int) or type(data).__name__ == _END_OF_SAMPLES:
            return None
        return self._plan.loader, self._epoch, batch

    def _write_sends(self) -> None:
        for send in self._sends.drain() if self._sends is not None else ():
            self._log.add(SEND, send)

    def _add_span(self, kind: str, start_ns: int, duration_ns: int) -> None:
        place = (self._plan.loader, self._epoch, UNKNOWN)
        cpu_ns = thread_time_ns() if kind == "setup" else UNKNOWN
        self._log.add(SPAN, Span(*place, _READ, KINDS.index(kind), start_ns, duration_ns, cpu_ns, 0, 0))

    def _finish(self) -> None:
        self._write_sends()
        if self._cleanup_start_ns:
            self._add_span("cleanup", self._cleanup_start_ns, perf_counter_ns() - self._cleanup_start_ns)
        self._log.close()
