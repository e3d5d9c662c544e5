"""Time a batch on its way out of a worker: taken from the buffer, pickled, the pipe's lock won, written.

A multiprocessing queue does this on a thread of its own. The buffer, the lock and the write function that it hands to
that thread are exchanged on this one queue, in the worker, before its first `put`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import perf_counter_ns, thread_time_ns
from typing import Any

from collector.ring.stage_log import Send

_DEPTH_LIMIT = 4
_LEAF_LIMIT = 256


class SendProbe:
    """Times the sends of one queue. `expect` and `drain` are called by the thread that puts, the rest by the feeder."""

    def __init__(self, queue: Any) -> None:
        """Exchange the parts of the queue. AttributeError if it is no queue of multiprocessing's, or already in use."""
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
        """Say which loader, epoch and batch the next object that is put stands for; None for no batch."""
        self._expected.append(place)

    def drain(self) -> list[Send]:
        """Return what has been sent since the last call."""
        return [self._sent.popleft() for _ in range(len(self._sent))]

    def take(self, message: Any) -> None:
        """Begin with an object that came out of the buffer."""
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
    """The lock of the pipe that all workers write to."""

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
    """Return the bytes of the tensors in a batch: they travel in shared memory, not in the message. Bounded in depth."""
    if hasattr(data, "untyped_storage"):
        return int(data.nbytes)
    if depth >= _DEPTH_LIMIT:
        return 0
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, (list, tuple)):
        return sum(count_tensor_bytes(item, depth + 1) for item in data[:_LEAF_LIMIT])
    return 0
