"""Record forward passes, which are the calls of outermost modules.

Global module hooks see every module, but cost microseconds per call and break graphs under torch.compile. So they stay
only until the classes of outermost modules are known, which is the discovery. From then on only the `__call__` of those
classes is patched. The first compilation ends the discovery, because a later change of hooks forces a second
compilation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from collector.context.hooks import bind, do_nothing, find_compiled_kind, skip_code, stop_calling
from collector.context.signals import Signal, SignalContext
from collector.edge import Edge, hide_frame, log_failure, uncounted, unseen
from collector.ring.codes import FORWARD_END, FORWARD_START, NO_GRAD

STEPS_OF_DISCOVERY = 3
CALLS_OF_DISCOVERY = 512
"""Number of calls of outermost modules after which discovery ends even without training, as in inference."""
CALLS_OF_REDISCOVERY = 16

_log = logging.getLogger("stepscope")


class ForwardSignal(Signal):
    name = "forward"

    def __init__(self) -> None:
        # Classes of outermost modules: how often each was called, and its number.
        self._roots: dict[type, int] = {}
        self._numbers: dict[type, int] = {}
        self._patched: set[type] = set()
        self._handles: list[Any] = []
        # depth of module calls during discovery, then 1 while an outermost module of a patched class runs
        self._depth = [0]
        self._calls = 0

    def install(self, context: SignalContext) -> None:
        self._context = context
        context.when_imported("torch._dynamo", self._watch_compiled)
        self._begin_discovery()
        context.steps.on_idle = self._discover_again
        context.undo.call(self._remove_discovery)
        context.boundaries.append(self._on_step)

    def _watch_compiled(self) -> None:
        from torch._dynamo.callback import callback_handler

        context, kind = self._context, find_compiled_kind()
        compiled_call = self._wrap_call(kind.__call__)

        @uncounted
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            self._end_discovery()
            with unseen:
                return compiled_call(module, *args, **kwargs)

        def on_compile(event: Any) -> None:
            context.steps.compile_starts()
            self._end_discovery()

        for hook in (call, on_compile):
            skip_code(hook.__code__)
        context.undo.patch(kind, "__call__", call)
        callback_handler.register_start_callback(on_compile)
        context.undo.call(lambda: callback_handler.remove_start_callback(on_compile))

    def remove(self) -> None:
        self._context.has_inferred |= bool(self._roots)
        self._context.steps.on_idle = do_nothing
        self._end_discovery(patch=False)

    def _begin_discovery(self) -> None:
        before, after = self._make_discovery_hooks()
        self._handles = [
            register_module_forward_pre_hook(before),
            register_module_forward_hook(after, always_call=True),
        ]

    def _discover_again(self) -> None:
        """Begin another discovery, for outermost modules whose first call comes late, such as a second model. Do
        nothing if one is under way or something was compiled.
        """
        if not self._handles and not self._context.steps.has_compiled:
            self._calls = CALLS_OF_DISCOVERY - CALLS_OF_REDISCOVERY
            self._begin_discovery()

    def rehearse(self, context: SignalContext) -> dict[str, Callable[[], object]]:
        self._context = context
        hook = self._wrap_call(do_nothing)
        return {"forward": lambda: hook(None)}

    def _on_step(self, step: int) -> None:
        if step >= STEPS_OF_DISCOVERY:
            self._end_discovery()
            stop_calling(self._on_step, self._context.boundaries)

    def _make_discovery_hooks(self) -> tuple[Any, Any]:
        log, depth, steps = self._context.log, self._depth, self._context.steps
        words, mask, following, thread, now, get_ident = bind(log)
        inside, is_root, end = self._context.in_backward, self._is_root, self._end_discovery
        grad, compiling = torch.is_grad_enabled, torch.compiler.is_compiling
        watchers, show, numbers = self._context.module_watchers, self._show, self._numbers
        callers, elsewhere, began = self._context.call_watchers, self._context.elsewhere, [0]

        def before(module: Any, args: Any) -> None:
            if compiling():
                return
            if get_ident() != thread[0]:
                other = elsewhere[0]
                if other is None or other.starts(depth[0]):
                    return
            if inside[0]:
                return
            if not depth[0]:
                if not is_root(type(module)):
                    if watchers:
                        show(module)
                    return
                steps.idle_fetches = 0
                began[0] = now()
                words[following() & mask] = began[0] + FORWARD_START
                if not grad():
                    words[following() & mask] = numbers[type(module)] + NO_GRAD
            depth[0] += 1
            if watchers:
                show(module)

        def after(module: Any, args: Any, output: Any) -> None:
            if compiling():
                return
            if get_ident() != thread[0]:
                other = elsewhere[0]
                if other is not None:
                    other.ends()
                return
            if inside[0] or not depth[0]:
                return
            depth[0] -= 1
            if not depth[0]:
                words[following() & mask] = now() + FORWARD_END
                if callers:
                    callers[0](began[0], module, (args, {}), output)
                self._calls += 1
                if self._calls >= CALLS_OF_DISCOVERY:
                    end()

        for hook in (before, after):
            skip_code(hook.__code__)
        return before, after

    def _is_root(self, kind: type) -> bool:
        """Return whether the called module, of class `kind`, counts as outermost; if so, count its call. Losses and
        compiled modules do not.
        """
        try:
            # The loss belongs to the forward by definition, as the time between forward and backward.
            if str(kind.__module__).startswith("torch.nn.modules.loss") or issubclass(kind, find_compiled_kind()):
                return False
            self._roots[kind] = self._roots.get(kind, 0) + 1
            self._numbers.setdefault(kind, len(self._numbers) + 1)
        except Exception as error:  # noqa: BLE001  an edge: the class of a class may refuse anything, a hash included
            _log.debug("stepscope: calls of a module are left out: %r", error)
            return False
        return True

    def _show(self, module: Any) -> None:
        with log_failure("a module could not be looked at", level=logging.DEBUG):
            for watch in self._context.module_watchers:
                watch(module)

    def _end_discovery(self, patch: bool = True) -> None:
        if not self._handles:
            return
        self._remove_discovery()
        if self._depth[0]:
            log = self._context.log
            log.write(FORWARD_END, perf_counter_ns())
            self._depth[0] = 0
        if not patch:
            return
        for kind in self._roots:
            self._patch_class(kind)
        names = [kind.__name__ for kind, _ in sorted(self._roots.items(), key=lambda item: -item[1])]
        if names and not self._context.notes.points.get("forward_start"):
            self._context.notes.points["forward_start"] = ", ".join(names[:3])
            self._context.save_notes()

    def _remove_discovery(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _patch_class(self, kind: type) -> None:
        if kind in self._patched:
            return
        self._patched.add(kind)
        with Edge(self._warn_of_sealed):
            self._context.undo.patch(kind, "__call__", self._wrap_call(kind.__call__, self._numbers[kind]))

    def _warn_of_sealed(self, error: Exception) -> None:
        self._context.warn("sealed_model", f"Forward passes of a model are not timed, its class is sealed: {error!r}.")

    def _wrap_call(self, original: Any, number: int = 0) -> Any:
        log, depth, steps = self._context.log, self._depth, self._context.steps
        words, mask, following, thread, now, get_ident = bind(log)
        inside, without_gradients = self._context.in_backward, NO_GRAD + number
        grad, tracing = torch.is_grad_enabled, torch.compiler.is_dynamo_compiling
        watchers, elsewhere = self._context.call_watchers, self._context.elsewhere

        @uncounted
        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
            # tracing() comes first: Dynamo must fold it to a constant before it sees a cell of this function.
            if tracing():
                return original(module, *args, **kwargs)
            try:
                if depth[0] or inside[0] or get_ident() != thread[0]:
                    other = elsewhere[0]
                    if other is None or get_ident() == thread[0]:
                        return original(module, *args, **kwargs)
                    if other.starts(depth[0]):
                        try:
                            return original(module, *args, **kwargs)
                        finally:
                            other.ends()
                depth[0] = 1
                steps.idle_fetches = 0
                began = now()
                words[following() & mask] = began + FORWARD_START
                if not grad():
                    words[following() & mask] = without_gradients
                try:
                    result = original(module, *args, **kwargs)
                finally:
                    depth[0] = 0
                    words[following() & mask] = now() + FORWARD_END
                if watchers:
                    watchers[0](began, module, (*args, kwargs), result)
                return result
            except BaseException as error:
                hide_frame(error)
                raise

        skip_code(__call__.__code__)
        return __call__


SIGNAL = ForwardSignal
