"""Record backward passes. Every backward goes through `torch.autograd._engine_run_backward`.

`Tensor.backward`, `autograd.backward` and `autograd.grad` all call this private function. Patching it leaves those
three public objects as they are, so code that compares them still works.

With a process group, the end of a backward may be a wait for gradients of other ranks: DDP waits in a callback of the
engine after the last gradient is computed. A callback of Stepscope, queued before DDP's, marks the end of the
computing; the rest of the backward is exposed communication.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch

from collector.context.hooks import bind, do_nothing, is_backward_compiled, skip_code
from collector.context.signals import Signal, SignalContext
from collector.edge import hide_frame, uncounted
from collector.ring.codes import BACKWARD_END, BACKWARD_START, COLLECTIVE_END, COLLECTIVE_START

LEAST_WAIT_NS = 20_000
"""Shortest time between the last gradient and the end of a backward that counts as a wait for other ranks. A shorter
time is work of the engine."""


class BackwardSignal(Signal):
    name = "backward"

    def install(self, context: SignalContext) -> None:
        self._context = context
        original = torch.autograd._engine_run_backward
        hook = _make_engine_hook(context, original)
        skip_code(hook.__code__)
        context.undo.patch(torch.autograd, "_engine_run_backward", hook)

    def rehearse(self, context: SignalContext) -> dict[str, Callable[[], object]]:
        self._context = context
        hook = _make_engine_hook(self._context, do_nothing)
        return {"backward": lambda: hook(None)}


def _make_engine_hook(context: SignalContext, original: Any) -> Any:
    log = context.log
    words, mask, following, thread, now, get_ident = bind(log)
    inside = context.in_backward
    steps, adopt, watch_end, waits = context.steps, context.adopt_thread, _make_end_watch(), context.wait_watchers
    watchers = context.gradient_watchers
    world = _find_world()

    @uncounted
    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        try:
            if get_ident() != thread[0] and not adopt():
                return original(*args, **kwargs)
            watched = None
            is_inner = inside[0]
            if watchers:
                watchers[0].backward_starts(args, kwargs)
            if not is_inner:
                steps.backwards = count = steps.backwards + 1
                if count > steps.patience:
                    steps.backward_starts()
                steps.has_trained = True
                if world._default_pg is not None:
                    watched = watch_end(args)
            inside[0] = is_inner + 1
            before = now()
            words[following() & mask] = before + BACKWARD_START
            try:
                return original(*args, **kwargs)
            finally:
                after = now()
                if watched is not None and watched.close() and after - watched.computed > LEAST_WAIT_NS:
                    words[following() & mask] = watched.computed + COLLECTIVE_START
                    words[following() & mask] = after + COLLECTIVE_END
                words[following() & mask] = after + BACKWARD_END
                inside[0] = is_inner
                if not is_inner:
                    if watched is not None:
                        for watch in waits:
                            watch(after - before)
                    if steps.updated_inside:
                        steps.backward_ends()
        except BaseException as error:
            hide_frame(error)
            raise

    return _engine_run_backward


class _EndWatch:
    """A watch on one backward. `computed` is the perf_counter_ns reading when its last gradient was computed; 0 until
    then.
    """

    __slots__ = ("_handle", "_queue", "computed")

    def __init__(self, first: Any, queue: Any) -> None:
        self.computed = 0
        self._queue = queue
        self._handle = first.register_prehook(self._on_first)

    def _on_first(self, gradients: Any) -> None:
        self._queue(self._on_computed)

    def _on_computed(self) -> None:
        # On a CUDA device this runs on the engine's own thread, while the training thread waits for it.
        self.computed = perf_counter_ns()

    def close(self) -> bool:
        """Remove the hook from the autograd graph, because the script may use the graph again. Return whether all
        gradients of the backward were computed.
        """
        self._handle.remove()
        return self.computed > 0


def _make_end_watch() -> Callable[[tuple[Any, ...]], _EndWatch | None]:
    """Return a function that takes the arguments of a backward and begins to watch it, in about 3 µs. The function
    returns None for a compiled backward, and for tensors without an autograd graph.
    """
    queue = torch.autograd.Variable._execution_engine.queue_callback

    def watch_end(args: tuple[Any, ...]) -> _EndWatch | None:
        try:
            first = args[0][0].grad_fn
            # A hook on the graph would be traced with it, and end in another graph.
            if first is None or is_backward_compiled():
                return None
            return _EndWatch(first, queue)
        except Exception:  # noqa: BLE001  an edge: roots may be edges of a graph, or anything that the engine takes
            return None

    skip_code(watch_end.__code__)
    return watch_end


class _NoWorld:
    _default_pg = None


def _find_world() -> Any:
    """Return an object whose `_default_pg` is the default process group; `_default_pg` is None while there is no group."""
    return torch.distributed.distributed_c10d._world if torch.distributed.is_available() else _NoWorld


SIGNAL = BackwardSignal
