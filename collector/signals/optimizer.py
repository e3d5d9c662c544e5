"""Record parameter updates: optimizer steps (public hooks), zero_grad, and GradScaler.step, which may skip one."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from collector.context.hooks import bind, do_nothing, make_span_hook, skip_code
from collector.context.signals import Signal, SignalContext
from collector.edge import Edge, hide_frame, uncounted, unseen
from collector.ring.codes import (
    CLOSURE_END,
    CLOSURE_START,
    SCALER_END,
    SCALER_START,
    UPDATE_END,
    UPDATE_START,
    ZERO_END,
    ZERO_START,
)

MOST_OPTIMIZERS = 16
"""Most optimizers that are described: a script may make an optimizer for every step."""
_MOST_COUNTS = 16
"""Most parameters of which the count of updates is read. A parameter that got no gradient at times has a lower count."""


class OptimizerSignal(Signal):
    name = "optimizer"

    def __init__(self) -> None:
        self._seen: dict[int, dict[str, Any]] = {}
        self._before: set[int | None] = set()
        self._has_stepped = [False]

    def install(self, context: SignalContext) -> None:
        self._context = context
        before, after = self._make_step_hooks(context)
        zero_grad = _make_zero_hook(context, Optimizer.zero_grad)
        scaler_step = self._make_scaler_hook(context, torch.amp.GradScaler.step)
        for hook in (before, after, zero_grad, scaler_step):
            skip_code(hook.__code__)
        context.undo.call(register_optimizer_step_pre_hook(before).remove)
        context.undo.call(register_optimizer_step_post_hook(after).remove)
        context.undo.patch(Optimizer, "zero_grad", zero_grad)
        context.undo.patch(torch.amp.GradScaler, "step", scaler_step)

    def rehearse(self, context: SignalContext) -> dict[str, Callable[[], object]]:
        self._context = context
        before, after = self._make_step_hooks(self._context)
        zero_grad = _make_zero_hook(self._context, do_nothing)
        optimizer = object()
        self._seen[id(optimizer)] = {}

        def update() -> None:
            before(optimizer, (), {})
            after(optimizer, (), {})

        return {"update": update, "zero": lambda: zero_grad(None)}

    def _make_step_hooks(self, context: SignalContext) -> tuple[Any, Any]:
        log, seen, has_stepped = context.log, self._seen, self._has_stepped
        words, mask, following, thread, now, get_ident = bind(log)
        steps, inside, adopt, describe = context.steps, context.in_backward, context.adopt_thread, self._describe
        tracing = torch.compiler.is_dynamo_compiling
        wrap, watchers = _make_closure_wrapper(context), context.gradient_watchers

        def before(optimizer: Any, args: Any, kwargs: Any) -> Any:
            if tracing() or (get_ident() != thread[0] and not adopt()):
                return None
            if (steps.grouped or not steps.fetched) and not inside[0]:
                steps.update_starts(id(optimizer))
            if watchers:
                with unseen:
                    watchers[0].update_starts(optimizer)
            words[following() & mask] = now() + UPDATE_START
            return wrap(args, kwargs) if kwargs or len(args) > 1 else None

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            if tracing() or get_ident() != thread[0]:
                return
            words[following() & mask] = now() + UPDATE_END
            if watchers:
                with unseen:
                    watchers[0].update_ends()
            has_stepped[0] = True
            key = id(optimizer)
            if key not in seen and len(seen) < MOST_OPTIMIZERS:
                describe(optimizer)
            if inside[0]:
                steps.update_in_backward()
            else:
                steps.update_ends(key)

        return before, after

    def _make_scaler_hook(self, context: SignalContext, original: Any) -> Any:
        log, has_stepped, steps = context.log, self._has_stepped, context.steps
        watchers = context.gradient_watchers
        words, mask, following, thread, now, get_ident = bind(log)

        @functools.wraps(original)
        @uncounted
        def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                if get_ident() != thread[0]:
                    return original(self, optimizer, *args, **kwargs)
                has_stepped[0] = False
                if watchers:
                    watchers[0].takes(optimizer)
                words[following() & mask] = now() + SCALER_START
                try:
                    return original(self, optimizer, *args, **kwargs)
                finally:
                    words[following() & mask] = now() + SCALER_END
                    if not has_stepped[0]:
                        # The gradients were infinite: no hook has fired, and still the step has had its update.
                        steps.update_starts(id(optimizer))
                        steps.update_ends(id(optimizer))
            except BaseException as error:
                hide_frame(error)
                raise

        return step

    def _describe(self, optimizer: Any) -> None:
        fact: dict[str, Any] = {"name": type(optimizer).__name__}
        with Edge(lambda error: fact.update(error=repr(error))):
            group = optimizer.param_groups[0]
            tensors = [p for each in optimizer.param_groups for p in each["params"]]
            fact |= {
                "foreach": group.get("foreach"),
                "fused": group.get("fused"),
                "momentum": bool(group.get("momentum")),
                "parameters": sum(p.numel() for p in tensors),
                "tensors": len(tensors),
                "dtypes": _count_dtypes(tensors),
            }
            if not self._context.steps.ended:
                self._before.add(_count_before(optimizer))
                same = next(iter(self._before)) if len(self._before) == 1 else None
                self._context.notes.facts["updates_before"] = same
            for watch in self._context.optimizer_watchers:
                watch(optimizer)
        self._seen[id(optimizer)] = fact
        self._context.add_fact("optimizers", list(self._seen.values()))


def _count_dtypes(tensors: list[Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for tensor in tensors:
        name = str(tensor.dtype).removeprefix("torch.")
        found[name] = found.get(name, 0) + tensor.numel()
    return found


def _count_before(optimizer: Any) -> int | None:
    """Return how many updates an optimizer had counted before the one that it has just made; None if it counts none.

    The state of Adam and of most others counts them, and is part of a checkpoint. That of SGD does not.
    """
    states = itertools.islice(optimizer.state.values(), _MOST_COUNTS)
    counts = [_read_count(state.get("step")) for state in states if isinstance(state, dict)]
    known = [count for count in counts if count is not None]
    return max(max(known) - 1, 0) if known else None


def _read_count(count: Any) -> int | None:
    if type(count) is torch.Tensor:  # to read a distributed tensor would be a collective
        if count.numel() != 1 or not count.is_cpu:  # to read one of a device would wait for it
            return None
        count = count.item()
    return int(count) if type(count) in (int, float) else None


def _make_closure_wrapper(context: SignalContext) -> Callable[[Any, Any], Any]:
    """Return a function that takes the arguments of an optimizer's `step`, and returns them with the closure timed;
    None if there is no closure.

    So the time of the closure does not count as time of the update.
    """

    def time_closure(closure: Any) -> Any:
        return make_span_hook(context.log, closure, CLOSURE_START, CLOSURE_END)

    def wrap(args: Any, kwargs: Any) -> Any:
        if len(args) > 1 and callable(args[1]):
            return (args[0], time_closure(args[1]), *args[2:]), kwargs
        if callable(kwargs.get("closure")):
            return args, {**kwargs, "closure": time_closure(kwargs["closure"])}
        return None

    return wrap


def _make_zero_hook(context: SignalContext, original: Any) -> Any:
    log = context.log
    words, mask, following, thread, now, get_ident = bind(log)
    tracing, watchers = torch.compiler.is_dynamo_compiling, context.gradient_watchers

    @functools.wraps(original)
    @uncounted
    def zero_grad(self: Any, set_to_none: bool = True) -> None:
        if tracing() or get_ident() != thread[0]:
            original(self, set_to_none)
            return
        if watchers:
            with unseen:
                watchers[0].clears(self)
        words[following() & mask] = now() + ZERO_START
        try:
            original(self, set_to_none)
        except BaseException as error:
            hide_frame(error)
            raise
        finally:
            words[following() & mask] = now() + ZERO_END

    return zero_grad


SIGNAL = OptimizerSignal
