"""Backward passes: every one goes through `torch.autograd._engine_run_backward`, whoever asks for it.

It is the private function that `Tensor.backward`, `autograd.backward` and `autograd.grad` call; patching it leaves
those three public objects as they are, so code that compares them still works.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.eval_frame import skip_code

from collector.context import SignalContext
from collector.ring.codes import BACKWARD_END, BACKWARD_START


class BackwardSignal:
    name = "backward"
    option = ""

    def install(self, context: SignalContext) -> None:
        self._context = context
        original = torch.autograd._engine_run_backward
        hook = _make_engine_hook(context, original)
        skip_code(hook.__code__)
        context.undo.patch(torch.autograd, "_engine_run_backward", hook)

    def remove(self) -> None:
        pass

    def rehearse(self, context: SignalContext) -> dict[str, Callable[[], object]]:
        """Return what can be called to time the hooks alone, without install."""
        self._context = context
        hook = _make_engine_hook(self._context, _do_nothing)
        return {"backward": lambda: hook(None)}


def _make_engine_hook(context: SignalContext, original: Any) -> Any:
    log = context.log
    words, mask, following, thread = log.words, log.mask, log.following, log.thread
    inside = context.in_backward
    starts, ends = context.steps.backward_starts, context.steps.backward_ends
    adopt = context.adopt_thread
    now, get_ident = time.perf_counter_ns, threading.get_ident

    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        if get_ident() != thread[0] and not adopt():
            return original(*args, **kwargs)
        if not inside[0]:
            starts()
        inside[0] += 1
        words[following() & mask] = now() + BACKWARD_START
        try:
            return original(*args, **kwargs)
        finally:
            words[following() & mask] = now() + BACKWARD_END
            inside[0] -= 1
            if not inside[0]:
                ends()

    return _engine_run_backward


def _do_nothing(*args: Any, **kwargs: Any) -> None:
    pass


SIGNAL = BackwardSignal
