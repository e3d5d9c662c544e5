"""Time the sending of batches from a worker: taken from the buffer of its queue, pickled, pipe lock acquired, written.
Time the pinning of batches, too.

A multiprocessing queue sends on a thread of its own. In the worker, the buffer, the lock and the write function of that
thread are replaced, for this queue only, before the first `put`. The pin thread of the training process gets timed
queues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter_ns, thread_time_ns
from typing import Any

from collector.edge import uncounted
from collector.ring.stage_log import KINDS, SPAN, STAGES, Send, Span, StageLog
from collector.workers.tally import Guard

_DEPTH_LIMIT = 4
_LEAF_LIMIT = 256
_PIN = STAGES.index("pin")
_WORK, _INPUT_WAIT, _OUTPUT_WAIT = (KINDS.index(kind) for kind in ("work", "input_wait", "output_wait"))


class SendProbe:
    """A timer of the sends of one queue. Its own thread (the feeder) calls all but `expect` and `drain`."""

    def __init__(self, queue: Any) -> None:
        """Replace buffer, lock and write function. Raise AttributeError for another kind, or a started thread."""
        if queue._thread is not None:
            raise AttributeError("the queue's thread has started")
        self._expected: deque[tuple[int, int, int] | None] = deque()
        self._sent: deque[Send] = deque()
        self._place: tuple[int, int, int] | None = None
        self._write: Callable[..., Any] = queue._send_bytes
        queue._buffer = _TimedBuffer(self)
        queue._wlock = _TimedLock(queue._wlock, self)
        queue._send_bytes = self._timed_write

    def expect(self, place: tuple[int, int, int] | None) -> None:
        """Set loader, epoch and batch of the next object to be put; None for no batch."""
        self._expected.append(place)

    def drain(self) -> list[Send]:
        """Return the times of the batches that were sent since the last call."""
        return [self._sent.popleft() for _ in range(len(self._sent))]

    def take(self, message: Any) -> None:
        """Note that the feeder thread has taken an object out of the buffer, and start to time it."""
        self._place = self._expected.popleft() if self._expected and isinstance(message, tuple) else None
        self._tensor_bytes = count_tensor_bytes(message)
        self._cpu_start_ns = thread_time_ns()
        self._taken_ns = self._pickled_ns = self._locked_ns = perf_counter_ns()

    def _timed_write(self, message: Any, *rest: Any) -> None:
        cpu_start_ns = thread_time_ns()
        self._write(message, *rest)
        cpu_end_ns = thread_time_ns()
        if self._place is not None:
            self._sent.append(
                Send(
                    *self._place, self._taken_ns, self._pickled_ns, self._locked_ns, perf_counter_ns(),
                    cpu_end_ns - cpu_start_ns, cpu_end_ns - self._cpu_start_ns, len(message) + self._tensor_bytes,
                )
            )  # fmt: skip

    def wait_begins(self) -> None:
        self._pickled_ns = perf_counter_ns()

    def wait_ends(self) -> None:
        self._locked_ns = perf_counter_ns()


class _TimedBuffer(deque[Any]):
    def __init__(self, probe: SendProbe) -> None:
        super().__init__()
        self._probe = probe

    def popleft(self) -> Any:
        message = super().popleft()
        self._probe.take(message)
        return message


class _TimedLock:
    """A replacement for the lock of the pipe that all workers write to. It times the waits for the lock."""

    def __init__(self, lock: Any, probe: SendProbe) -> None:
        self._lock = lock
        self._probe = probe
        self.release = lock.release

    def acquire(self, *args: Any, **kwargs: Any) -> Any:
        self._probe.wait_begins()
        try:
            return self._lock.acquire(*args, **kwargs)
        finally:
            self._probe.wait_ends()


def count_tensor_bytes(data: Any, depth: int = 0) -> int:
    """Return the bytes of the tensors in a batch, to a fixed depth: they are sent in shared memory."""
    if hasattr(data, "untyped_storage"):
        return int(data.nbytes)
    if depth >= _DEPTH_LIMIT:
        return 0
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, (list, tuple)):
        return sum(count_tensor_bytes(item, depth + 1) for item in data[:_LEAF_LIMIT])
    return 0


class PinEntry:
    """The replacement for `_pin_memory_loop` while an iterator is made: it gives the loop timed queues."""

    def __init__(self, original: Callable[..., Any], log: StageLog, loader: int, epoch: int) -> None:
        self._original = original
        self._log = log
        self._loader = loader
        self._epoch = epoch

    @uncounted
    def __call__(self, in_queue: Any, out_queue: Any, *rest: Any) -> Any:
        clock = _PinClock(self._log, self._loader, self._epoch)
        return self._original(_TimedQueue(in_queue, clock), _TimedQueue(out_queue, clock), *rest)


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


class _TimedQueue:
    def __init__(self, queue: Any, clock: _PinClock) -> None:
        self._queue = queue
        self._clock = clock

    def get(self, *args: Any, **kwargs: Any) -> Any:
        message = self._queue.get(*args, **kwargs)
        self._clock.guard.run(self._clock.pick, message)
        return message

    def put(self, message: Any, *args: Any, **kwargs: Any) -> None:
        self._clock.guard.run(self._clock.stop)
        self._queue.put(message, *args, **kwargs)
        self._clock.guard.run(self._clock.write, message)
