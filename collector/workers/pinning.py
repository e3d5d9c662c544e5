"""The thread that copies batches into pinned memory: the time of each copy, and its waits on both sides."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns, thread_time_ns
from typing import Any

from collector.ring.stage_log import KINDS, SPAN, STAGES, Span, StageLog
from collector.workers.guard import Guard
from collector.workers.sending import count_tensor_bytes

_PIN = STAGES.index("pin")
_WORK, _INPUT_WAIT, _OUTPUT_WAIT = (KINDS.index(kind) for kind in ("work", "input_wait", "output_wait"))


class PinEntry:
    """Stands in for `_pin_memory_loop` while an iterator is made; the loop gets queues that take the time."""

    def __init__(self, original: Callable[..., Any], log: StageLog, loader: int, epoch: int) -> None:
        self._original = original
        self._log = log
        self._loader = loader
        self._epoch = epoch

    def __call__(self, in_queue: Any, out_queue: Any, *rest: Any) -> Any:
        clock = _PinClock(self._log, self._loader, self._epoch)
        return self._original(_TimedSource(in_queue, clock), _TimedSink(out_queue, clock), *rest)


class _PinClock:
    def __init__(self, log: StageLog, loader: int, epoch: int) -> None:
        self._log = log
        self._loader = loader
        self._epoch = epoch
        self._resuming = False
        self._free_ns = perf_counter_ns()
        self._picked_ns = self._done_ns = self._cpu_start_ns = 0
        self.guard = Guard("the thread that pins memory", self._give_up)

    def pick(self, message: Any) -> None:
        self._picked_ns = perf_counter_ns()
        self._cpu_start_ns = thread_time_ns()
        if type(message[0]).__name__ != "_ResumeIteration":
            self._resuming = False
        elif not self._resuming:  # every worker of a persistent pool sends one: together they begin one epoch
            self._resuming = True
            self._epoch += 1

    def stop(self) -> None:
        self._done_ns = perf_counter_ns()

    def write(self, message: Any) -> None:
        end_ns = perf_counter_ns()
        batch, data = message
        if isinstance(batch, int):
            cpu_ns = thread_time_ns() - self._cpu_start_ns
            self._add(batch, _INPUT_WAIT, self._free_ns, self._picked_ns, 0, 0)
            self._add(batch, _WORK, self._picked_ns, self._done_ns, cpu_ns, count_tensor_bytes(data))
            self._add(batch, _OUTPUT_WAIT, self._done_ns, end_ns, 0, 0)
        self._free_ns = end_ns

    def _add(self, batch: int, kind: int, start_ns: int, end_ns: int, cpu_ns: int, size: int) -> None:
        place = (self._loader, self._epoch, batch)
        self._log.add(SPAN, Span(*place, _PIN, kind, start_ns, end_ns - start_ns, cpu_ns, 0, size))

    def _give_up(self, error: Exception) -> None:
        self._log.note(f"pinning was not timed to its end: {error!r}")


class _TimedSource:
    def __init__(self, queue: Any, clock: _PinClock) -> None:
        self._queue = queue
        self._clock = clock

    def get(self, *args: Any, **kwargs: Any) -> Any:
        message = self._queue.get(*args, **kwargs)
        self._clock.guard.run(self._clock.pick, message)
        return message


class _TimedSink:
    def __init__(self, queue: Any, clock: _PinClock) -> None:
        self._queue = queue
        self._clock = clock

    def put(self, message: Any, *args: Any, **kwargs: Any) -> None:
        self._clock.guard.run(self._clock.stop)
        self._queue.put(message, *args, **kwargs)
        self._clock.guard.run(self._clock.write, message)
