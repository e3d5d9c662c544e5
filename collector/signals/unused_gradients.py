"""Gradients that nothing uses: of parameters that take part in the backward, but that no optimizer updates.

They are looked for once, between two steps, when each optimizer that steps regularly has done so. An optimizer clears only
what it holds, so gradients of other parameters are still there, unless the training clears those of the whole model.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch

from collector.context.signals import SignalContext
from collector.context.undo import stop_calling

LOOK_AT_STEP = 30
MOST_PARAMETERS = 20_000


class UnusedGradientsSignal:
    name = "unused_gradients"
    option = ""

    def __init__(self) -> None:
        self._parameters: dict[int, weakref.ref[Any]] = {}
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()

    def install(self, context: SignalContext) -> None:
        self._context = context
        context.module_watchers.append(self._see_module)
        context.optimizer_watchers.append(self._optimizers.add)
        context.boundaries.append(self._on_step)

    def remove(self) -> None:
        stop_calling(self._on_step, self._context.boundaries)
        stop_calling(self._see_module, self._context.module_watchers)
        self._parameters.clear()

    def _see_module(self, module: Any) -> None:
        if len(self._parameters) < MOST_PARAMETERS:
            for parameter in module.parameters(recurse=False):
                self._parameters.setdefault(id(parameter), weakref.ref(parameter))

    def _on_step(self, step: int) -> None:
        if step < LOOK_AT_STEP:
            return
        with self._context.shielded(self.name):
            living = [parameter for seen in self._parameters.values() if (parameter := seen()) is not None]
            found = find_unused(living, self._optimizers)
            if found is not None:
                self._context.add_fact("unused_gradients", found)
        self.remove()


def find_unused(parameters: Iterable[Any], optimizers: Iterable[Any]) -> dict[str, int] | None:
    """Return how many numbers have gradients that no optimizer takes, and how many are updated; None for none unused.

    Where the optimizers hold copies of all parameters, or those of one dtype, it cannot be told which are updated.
    """
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    updated = {id(parameter) for group in groups for parameter in group["params"]}
    own = [parameter for parameter in parameters if id(parameter) in updated]
    dtypes = {parameter.dtype for parameter in own}
    unused = [
        parameter
        for parameter in parameters
        if id(parameter) not in updated and parameter.requires_grad and isinstance(parameter.grad, torch.Tensor)
    ]
    if not unused or any(parameter.dtype not in dtypes for parameter in unused):
        return None
    return {
        "parameters": sum(parameter.numel() for parameter in unused),
        "tensors": len(unused),
        "updated": sum(parameter.numel() for parameter in own),
    }


SIGNAL = UnusedGradientsSignal
