"""Count the calls of a model in a run that does not train, and record those of requests and of other threads as ranges.

One thread is recorded call by call, in `steps`: the first that calls a model, or the next one once that thread has
ended. The first backward or update ends all of this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch

from collector.context.hooks import find_tracer, skip_code
from collector.context.signals import Signal, SignalContext
from collector.marks.ranges import add_call


class _Local(threading.local):
    def __init__(self) -> None:
        self.depth = self.began_ns = 0


class ServingSignal(Signal):
    name = "serving"
    _first: type | None = None  # the class of the model that was called first

    def install(self, context: SignalContext) -> None:
        self._prepare(context)
        context.call_watchers.append(self._see)
        context.elsewhere[0] = self
        for hook in (ServingSignal._see, ServingSignal.starts, ServingSignal.ends):
            skip_code(hook.__code__)

    def remove(self) -> None:
        self._context.elsewhere[0] = None
        self._stop()

    def rehearse(self, context: SignalContext) -> dict[str, Callable[[], object]]:
        self._prepare(context)
        self._first = type(None)
        return {"call": lambda: self._see(1, None, ((), {}), None)}

    def starts(self, is_inside: int) -> bool:
        """Note that a module is called on another thread than the recorded one, which `is_inside` a call if not 0.
        Return False if the calling thread is the recorded one from now on.
        """
        context, local = self._context, self._local
        if context.steps.has_trained:
            context.elsewhere[0] = None
        elif local.depth:
            local.depth += 1
        elif context.adopt_caller(bool(is_inside) or self._first is not None):
            return False
        else:
            local.depth, local.began_ns = 1, perf_counter_ns()
        return True

    def ends(self) -> None:
        local = self._local
        if local.depth:
            local.depth -= 1
            if not local.depth and not self._may_trace():
                add_call(local.began_ns, always=True)

    def _prepare(self, context: SignalContext) -> None:
        self._context, self._calls, self._steps = context, context.calls, context.steps
        self._first = None
        self._local = _Local()
        self._may_trace: Callable[[], Any] = find_tracer()
        self._has_gradients = torch.is_grad_enabled

    def _see(self, began_ns: int, module: Any, given: Any, result: Any) -> None:
        if self._steps.has_trained:
            self._stop()
            return
        if not began_ns or self._may_trace():  # a batch of a loader, or Dynamo would compile what follows
            return
        if self._first is None:
            self._first = type(module)
        add_call(began_ns)
        calls = self._calls
        is_unit = type(module) is self._first or self._has_gradients()
        if is_unit and not (self._steps.fetches or calls.in_batch):
            calls.end()

    def _stop(self) -> None:
        if self._see in self._context.call_watchers:
            self._context.call_watchers.remove(self._see)


SIGNAL = ServingSignal
