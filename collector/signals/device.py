"""Record the device time of the phases of a step, from CUDA events. Host times cannot show it, because the host runs
ahead of the device.

Events are recorded on the current stream at the end of a step and around its backward and its updates. The time between
two events is the device's time of that phase, idle time included. One step in ten is measured. Events are pooled,
queried later, and never waited for. The first exception ends the signal. Tested on a simulated CUDA device only.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from collector.context.hooks import skip_code, stop_calling
from collector.context.signals import Signal, SignalContext
from collector.edge import Edge, hide_frame, uncounted
from collector.format.phases import BACKWARD, FORWARD, OPTIMIZER, TAIL
from collector.ring.codes import DEVICE_PHASE, DEVICE_STEP
from collector.ring.packing import pack_device_phase

EVERY = 10
_MOST_WAITING = 64
"""Most measured steps that wait for their events; of more steps, the oldest is dropped."""
_MOST_MARKS = 512


class DeviceSignal(Signal):
    name = "device_time"

    def __init__(self) -> None:
        self._is_measuring = [False]
        self._marks: list[tuple[int, Any]] = []
        self._waiting: deque[tuple[int, list[tuple[int, Any]]]] = deque()
        self._pool: list[Any] = []

    def install(self, context: SignalContext) -> None:
        self._context = context
        if not torch.cuda.is_available():
            context.notes.signals.pop(self.name, None)  # nothing is missing where there is no device
            return
        context.boundaries.append(self._on_boundary)
        measuring, mark, is_mine = self._is_measuring, self._mark, context.log.is_mine
        original = torch.autograd._engine_run_backward

        @uncounted
        def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
            try:
                if not measuring[0] or not is_mine() or context.in_backward[0]:
                    return original(*args, **kwargs)
                mark(FORWARD)
                try:
                    return original(*args, **kwargs)
                finally:
                    mark(BACKWARD)
            except BaseException as error:
                hide_frame(error)
                raise

        def updated(optimizer: Any, args: Any, kwargs: Any) -> None:
            if measuring[0] and is_mine() and not context.in_backward[0]:
                mark(OPTIMIZER)

        for hook in (_engine_run_backward, updated):
            skip_code(hook.__code__)
        context.undo.patch(torch.autograd, "_engine_run_backward", _engine_run_backward)
        context.undo.call(register_optimizer_step_post_hook(updated).remove)

    def remove(self) -> None:
        self._is_measuring[0] = False
        self._collect()

    def make_event(self) -> Any:
        return torch.cuda.Event(enable_timing=True)

    def _on_boundary(self, ended: int) -> None:
        if self._is_measuring[0]:
            self._mark(TAIL)
            self._finish(ended)
        if ended % EVERY == 0 and torch.cuda.is_initialized():
            self._is_measuring[0] = True
            self._mark(TAIL)  # where the step to be measured begins
        elif self._waiting:
            self._collect()

    def _mark(self, phase: int) -> None:
        try:
            if len(self._marks) >= _MOST_MARKS or torch.cuda.is_current_stream_capturing():
                self._is_measuring[0] = False
                self._recycle(self._take_marks())
                return
            event = self._pool.pop() if self._pool else self.make_event()
            event.record()
            self._marks.append((phase, event))
        except Exception as error:  # noqa: BLE001  an edge: a device may fail in any way, and capturing a graph forbids events
            self._give_up(error)

    def _take_marks(self) -> list[tuple[int, Any]]:
        marks = self._marks[:]
        self._marks.clear()
        return marks

    def _finish(self, step: int) -> None:
        self._is_measuring[0] = False
        marks = self._take_marks()
        if len(marks) > 1:
            self._waiting.append((step, marks))
        if len(self._waiting) > _MOST_WAITING:
            self._waiting.popleft()

    def _collect(self) -> None:
        with Edge(self._give_up):
            while self._waiting and self._waiting[0][1][-1][1].query():
                step, marks = self._waiting.popleft()
                self._write(step, marks)
                self._recycle(marks)

    def _write(self, step: int, marks: list[tuple[int, Any]]) -> None:
        times: dict[int, int] = {}
        for (_, before), (phase, event) in itertools.pairwise(marks):
            times[phase] = times.get(phase, 0) + max(round(before.elapsed_time(event) * 1e6), 0)
        log = self._context.log
        log.write(DEVICE_STEP, step)
        for phase, time_ns in times.items():
            log.write(DEVICE_PHASE, pack_device_phase(phase, time_ns))

    def _recycle(self, marks: list[tuple[int, Any]]) -> None:
        self._pool.extend(event for _, event in marks)

    def _give_up(self, error: Exception) -> None:
        self._is_measuring[0] = False
        self._marks.clear()
        self._waiting.clear()
        stop_calling(self._on_boundary, self._context.boundaries)
        self._context.fail_signal(self.name, error)


SIGNAL = DeviceSignal
