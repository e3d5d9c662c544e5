"""Record ranges, stages and queues that the script names; with CUDA also make NVTX ranges, and time ranges on the
device.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from collector.context.inputs import TrainingInput
from collector.context.signals import Signal, SignalContext
from collector.marks.outlet import Outlet, close_outlet, open_outlet
from collector.marks.ranges import close_left_open
from collector.ring.mark_log import DEVICE, UNKNOWN, DeviceTime

try:
    import torch
except ImportError:  # a script without torch marks ranges too
    torch = None

_MOST_EVENTS = 8192
_FINISH_S = 2.0
_MOST_NAME = 80
_LEFT_OPEN = (
    "Ranges that were pushed and never popped: {count}, the first is {name!r}. They are recorded up to where the recording "
    "ended, as left open; call pop_range() once for each push_range()."
)


class MarksSignal(Signal):
    name = "ranges"

    def install(self, context: SignalContext) -> None:
        self._context, steps, calls = context, context.steps, context.calls
        counts = lambda: (steps.ended if calls.is_over else calls.ended) + 1  # noqa: E731
        self._outlet = Outlet(context.events, context.log.thread, counts)
        self._outlet.with_pipeline = context.options.data_pipeline
        self._outlet.trainer = TrainingInput(context)
        if torch is not None and torch.cuda.is_available():
            self._outlet.device = CudaRanges(self._outlet)
        open_outlet(self._outlet)

    def remove(self) -> None:
        names = close_left_open(self._outlet)
        if names:
            self._context.warn("ranges_left_open", _LEFT_OPEN.format(count=len(names), name=names[0][:_MOST_NAME]))
        if isinstance(self._outlet.device, CudaRanges):
            self._outlet.device.finish()
        close_outlet(self._outlet)


@dataclass
class _Mark:
    """A range that is open on the device. `allocations` is the device's count of memory requests at its start."""

    device: int
    stream: Any
    begin: Any
    allocations: int


class CudaRanges:
    """A timer of ranges by CUDA events on the current stream, which never waits for the device.

    The device time of a range runs from the end of the earlier work in the stream to the end of the range's own work,
    idle time included. A range launched nothing if it requested no device memory and left the stream empty.
    """

    def __init__(self, outlet: Outlet) -> None:
        self._outlet = outlet
        self._lock = threading.Lock()
        self._pool: list[Any] = []
        self._ended: deque[tuple[int, Any, Any]] = deque()
        self._pid = os.getpid()

    def open(self, name: str) -> _Mark | None:
        torch.cuda.nvtx.range_push(name)
        if not torch.cuda.is_initialized():
            return _Mark(-1, None, None, 0)
        stream = torch.cuda.current_stream()
        begin = self._take()
        mark = _Mark(stream.device_index, stream, begin, _count_allocations(stream.device_index))
        begin.record(stream)
        return mark

    def close(self, mark: object, range_id: int) -> None:
        assert isinstance(mark, _Mark)
        torch.cuda.nvtx.range_pop()
        if mark.begin is None:
            device_ns = UNKNOWN if torch.cuda.is_initialized() else 0
            self._write(range_id, device_ns)
        elif self._launched_nothing(mark):
            self._give_back(mark.begin)
            self._write(range_id, 0)
        else:
            end = self._take()
            end.record(mark.stream)
            with self._lock:
                self._ended.append((range_id, mark.begin, end))
        self._collect()

    def drop(self, mark: object) -> None:
        assert isinstance(mark, _Mark)
        torch.cuda.nvtx.range_pop()
        if mark.begin is not None:
            self._give_back(mark.begin)

    def finish(self) -> None:
        """Wait briefly for unfinished work of the device; the device times of work still unfinished stay unknown."""
        deadline = time.monotonic() + _FINISH_S
        while self._ended and time.monotonic() < deadline:
            self._collect()
            time.sleep(0.001 if self._ended else 0.0)
        for range_id, _, _ in self._ended:
            self._write(range_id, UNKNOWN)

    def _launched_nothing(self, mark: _Mark) -> bool:
        return bool(mark.stream.query()) and _count_allocations(mark.device) == mark.allocations

    def _collect(self) -> None:
        while self._ended:
            with self._lock:
                if not self._ended or not self._ended[0][2].query():
                    return
                range_id, begin, end = self._ended.popleft()
            self._write(range_id, round(begin.elapsed_time(end) * 1e6))
            self._give_back(begin, end)

    def _write(self, range_id: int, device_ns: int) -> None:
        self._outlet.log.add(DEVICE, DeviceTime(range_id, device_ns))

    def _take(self) -> Any:
        with self._lock:
            return self._pool.pop() if self._pool else torch.cuda.Event(enable_timing=True)

    def _give_back(self, *events: Any) -> None:
        with self._lock:
            if len(self._pool) < _MOST_EVENTS:
                self._pool.extend(events)


def _count_allocations(device: int) -> int:
    return int(torch.cuda.memory_stats(device).get("allocation.all.allocated", 0))


SIGNAL = MarksSignal
