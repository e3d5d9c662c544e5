"""Record the points that the user names in place of the automatic ones, FP_POINT and BP_POINT.

FP_POINT is the module that starts the forward. BP_POINT is the module whose gradients end the backward. Each is found
by its class name among the modules that the first steps call, or by the path of a submodule in such a module, as
`named_modules()` returns it.
"""

from __future__ import annotations

import os
from difflib import get_close_matches
from itertools import islice
from time import perf_counter_ns
from typing import Any

import torch

from collector.context.hooks import bind, skip_code
from collector.context.signals import Signal, SignalContext
from collector.edge import hide_frame, uncounted
from collector.ring.codes import BACKWARD_POINT, FORWARD_POINT

STEPS_TO_FIND = 3
MOST_PARAMETERS = 64
"""Most modules that are watched for BP_POINT, and most parameters watched in a module that has none of its own."""

MOST_NAMES = 5_000
"""Most class and module names kept, to suggest names close to a name that matches nothing."""


class PointsSignal(Signal):
    name = "points"

    def install(self, context: SignalContext) -> None:
        self._context = context
        self._forward = os.environ.get("FP_POINT", "").strip()
        self._backward = os.environ.get("BP_POINT", "").strip()
        self._patched: set[type] = set()
        self._watched: set[int] = set()
        self._names: dict[str, None] = {}
        self._untrained = ""
        if self._forward or self._backward:
            context.module_watchers.append(self._on_module)
            context.boundaries.append(self._on_step)

    def _on_module(self, module: Any) -> None:
        name = type(module).__name__
        self._find_by_path(module)
        self._names.setdefault(name)
        if name == self._forward and type(module) not in self._patched:
            self._patched.add(type(module))
            self._patch_class(type(module))
            self._set_point("forward_start", name)
            log = self._context.log
            log.words[log.following() & log.mask] = perf_counter_ns() + FORWARD_POINT
        if name == self._backward and id(module) not in self._watched and len(self._watched) < MOST_PARAMETERS:
            self._watched.add(id(module))
            self._watch_gradients(module)

    def _find_by_path(self, module: Any) -> None:
        """Place the points that the user gave by path, at the submodules of `module` with these paths.

        A forward calls its outermost module first, so the paths begin there.
        """
        if not self._names:
            self._names.update(dict.fromkeys(path for path, _ in islice(module.named_modules(), MOST_NAMES) if path))
        if not self._patched and (part := _find_part(module, self._forward)) is not None:
            self._patched.add(type(part))
            self._patch_class(type(part), part)
            self._set_point("forward_start", self._forward)
        if not self._watched and (part := _find_part(module, self._backward)) is not None:
            self._watched.add(id(part))
            self._watch_gradients(part)

    def _patch_class(self, kind: Any, only: Any = None) -> None:
        """Log each call of a module of class `kind` by the training thread, except in a backward. With `only`, log only
        calls of that module.
        """
        wanted = id(only) if only is not None else 0
        original, log, inside = kind.__call__, self._context.log, self._context.in_backward
        words, mask, following, thread, now, get_ident = bind(log)
        compiling = torch.compiler.is_compiling

        @uncounted
        def __call__(module: Any, *args: Any, **kwargs: Any) -> Any:
            if compiling():
                return original(module, *args, **kwargs)
            if not inside[0] and get_ident() == thread[0] and wanted in (0, id(module)):
                words[following() & mask] = now() + FORWARD_POINT
            try:
                return original(module, *args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise

        skip_code(__call__.__code__)
        self._context.undo.patch(kind, "__call__", __call__)

    def _watch_gradients(self, module: Any) -> None:
        log = self._context.log
        words, mask, following, thread, now, _ = bind(log)

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
        else:
            self._untrained = self._backward

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
                reason = self._explain(name, is_untrained=point == "backward_end" and name == self._untrained)
                self._context.warn(variable.lower(), f"{variable}={name}: {reason} The automatic point is used.")

    def _explain(self, name: str, is_untrained: bool) -> str:
        if is_untrained:
            return "this module has no parameters that are trained, so no gradient ends there. Name one that has some."
        near = get_close_matches(name, self._names, n=3)
        return (
            "the first steps called no module of this class, and none has this path. Name a class, or one module by "
            f"its path in named_modules(), such as encoder.layers.3.{' Near it: ' + ', '.join(near) + '.' if near else ''}"
        )


def _find_part(module: Any, path: str) -> Any:
    try:
        return module.get_submodule(path) if path else None
    except AttributeError:
        return None


SIGNAL = PointsSignal
