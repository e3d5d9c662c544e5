"""The model, found through modules called in the first steps: how it is distributed, and gradients that are never used."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch

from collector.context.hooks import stop_calling
from collector.context.signals import SETTLED_STEP, Signal, SignalContext

_COPIED = {
    "find_unused_parameters": "find_unused_parameters",
    "gradient_as_bucket_view": "gradient_as_bucket_view",
    "static_graph": "static_graph",
    "bucket_cap_bytes": "bucket_cap_bytes",
    "parameter_bytes": "total_parameter_size_bytes",
    "unused_bytes": "unused_parameter_size",
}
"""Names of facts, each with DDP's name for the value."""
_MOST_BUCKETS = 1000
FIRST_LOOK = 8
"""Backwards after which DDP's records are first read, when DDP has arranged its buckets."""
MOST_PARAMETERS = 20_000


class ParallelSignal(Signal):
    """The signal of how the model is spread over devices and ranks: DataParallel, and the settings of DDP.

    DDP's records are read when the facts are saved, which takes some 90 µs; each backward only checks one flag.
    """

    name = "parallel"

    def install(self, context: SignalContext) -> None:
        self._context = context
        self._module: weakref.ref[Any] | None = None
        self._backwards = self._synced = 0
        self._settings: dict[str, Any] = {}
        self._kinds = (torch.nn.parallel.DistributedDataParallel,) if torch.distributed.is_available() else ()
        context.module_watchers.append(self._find)
        context.wait_watchers.append(self._count)
        context.save_now_and_then(self.name, self._save)

    def _find(self, module: Any) -> None:
        if isinstance(module, torch.nn.DataParallel):
            devices = len(getattr(module, "device_ids", ()))
            if self._context.notes.facts.get("data_parallel") != devices:
                self._context.add_fact("data_parallel", devices)
        elif self._module is None and isinstance(module, self._kinds):
            self._module = weakref.ref(module)

    def _count(self, backward_ns: int) -> None:
        module = self._module() if self._module is not None else None
        if module is None:
            return
        self._backwards += 1
        self._synced += bool(module.require_backward_grad_sync)
        if self._backwards == FIRST_LOOK:
            with self._context.shielded(self.name):
                self._save()

    def _save(self) -> None:
        module = self._module() if self._module is not None else None
        if module is not None:
            self._settings = _describe(module)
        if self._settings:
            counts = {"backwards": self._backwards, "synced_backwards": self._synced}
            self._context.add_fact("ddp", {**self._settings, **counts})


def _describe(module: Any) -> dict[str, Any]:
    records: dict[str, Any] = module._get_ddp_logging_data()
    sizes = str(records.get("rebuilt_bucket_sizes") or records.get("bucket_sizes") or "")
    buckets = [int(size) for size in sizes.replace(" ", "").split(",") if size.isdecimal()]
    return {
        **{fact: int(records[name]) for fact, name in _COPIED.items() if name in records},
        "bucket_bytes": buckets[:_MOST_BUCKETS],
        "backend": str(records.get("backend_name", "")),
        "device_type": str(module.device_type),
        "hook": str(records.get("comm_hook", "")),
    }


class UnusedGradientsSignal(Signal):
    """The signal of gradients that the backward computes but no optimizer uses.

    Gradients are searched once, between two steps, after each regular optimizer has stepped. An optimizer clears only
    the gradients of its own parameters. Other gradients are still there, unless the training clears the whole model.
    """

    name = "unused_gradients"

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
        if step < SETTLED_STEP:
            return
        with self._context.shielded(self.name):
            living = [parameter for seen in self._parameters.values() if (parameter := seen()) is not None]
            found = find_unused(living, self._optimizers)
            if found is not None:
                self._context.add_fact("unused_gradients", found)
        self.remove()


def find_unused(parameters: Iterable[Any], optimizers: Iterable[Any]) -> dict[str, int] | None:
    """Count the parameter elements with gradients that no optimizer uses, their tensors, and all updated elements.

    None if every gradient is used. Also None if an unused parameter has a dtype that no updated parameter has, because
    the optimizers may then hold copies of parameters.
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


SIGNAL = (ParallelSignal, UnusedGradientsSignal)
