"""The points that the user names: FP_POINT, the module class that starts the forward, and BP_POINT, the one whose
gradients end the backward. Both are found by class name among the modules that the first steps call.
"""

from __future__ import annotations

import os
import threading
from time import perf_counter_ns
from typing import Any

import torch
from torch._dynamo.eval_frame import skip_code

from collector.context.signals import SignalContext
from collector.ring.codes import BACKWARD_POINT, FORWARD_POINT

STEPS_TO_FIND = 3
MOST_PARAMETERS = 64
"""Gradients that are watched at most for BP_POINT."""


class PointsSignal:
    name = "points"
    option = ""

    def install(self, context: SignalContext) -> None:
        self._context = context
        self._forward = os.environ.get("FP_POINT", "").strip()
        self._backward = os.environ.get("BP_POINT", "").strip()
        self._patched: set[type] = set()
        self._watched: set[int] = set()
        if self._forward or self._backward:
            context.module_watchers.append(self._on_module)
            context.boundaries.append(self._on_step)

    def remove(self) -> None:
        if getattr(self, "_context", None) and self._on_module in self._context.module_watchers:
            self._context.module_watchers.remove(self._on_module)

    def _on_module(self, module: Any) -> None:
        name = type(module).__name__
        if name == self._forward and type(module) not in self._patched:
            self._patched.add(type(module))
            self._patch_class(type(module))
            self._set_point("forward_start", name)
            log = self._context.log
            log.words[log.following() & log.mask] = perf_counter_ns() + FORWARD_POINT
        if name == self._backward and id(module) not in self._watched and len(self._watched) < MOST_PARAMETERS:
            self._watched.add(id(module))
            self._watch_gradients(module)

    def _patch_class(self, kind: Any) -> None:
        original, log, inside = kind.__call__, self._context.log, self._context.in_backward
        words, mask, following, thread = log.words, log.mask, log.following, log.thread
        now, get_ident, compiling = perf_counter_ns, threading.get_ident, torch.compiler.is_compiling

        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
            if not compiling() and not inside[0] and get_ident() == thread[0]:
                words[following() & mask] = now() + FORWARD_POINT
            return original(module, *args, **kwargs)

        skip_code(__call__.__code__)
        self._context.undo.patch(kind, "__call__", __call__)

    def _watch_gradients(self, module: Any) -> None:
        log = self._context.log
        words, mask, following, thread = log.words, log.mask, log.following, log.thread
        now = perf_counter_ns

        def on_gradient(parameter: Any) -> None:
            # On a CUDA device this runs on the engine's own thread, while the training thread waits for it.
            if thread[0] > 0:
                words[following() & mask] = now() + BACKWARD_POINT

        skip_code(on_gradient.__code__)
        own = [p for p in module.parameters(recurse=False) if p.requires_grad]
        # A class without parameters of its own, such as a model of layers, ends with the gradients of what it holds.
        parameters = own or [p for p in module.parameters() if p.requires_grad][:MOST_PARAMETERS]
        for parameter in parameters:
            self._context.undo.call(parameter.register_post_accumulate_grad_hook(on_gradient).remove)
        if parameters:
            self._set_point("backward_end", self._backward)

    def _set_point(self, point: str, name: str) -> None:
        self._context.notes.points |= {point: name, "point_source": "environment"}
        self._context.save_notes()

    def _on_step(self, step: int) -> None:
        if step < STEPS_TO_FIND:
            return
        self._context.boundaries.remove(self._on_step)
        points = self._context.notes.points
        for variable, name, point in (
            ("FP_POINT", self._forward, "forward_start"),
            ("BP_POINT", self._backward, "backward_end"),
        ):
            if name and points.get(point) != name:
                text = (
                    f"{variable}={name} names no module class that the first steps called; the automatic point is used."
                )
                self._context.warn(variable.lower(), text)


SIGNAL = PointsSignal
