"""Record how the model is spread over devices and ranks. It is found among the modules that the first steps call."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from collector.context.signals import Signal, SignalContext

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
"""Number of backwards after which DDP's records are first read: DDP has arranged its buckets by then."""


class ParallelSignal(Signal):
    """The signal of how the model is spread over devices and ranks: DataParallel, and the settings of DDP.

    DDP's records are read when the facts are saved, which takes some 90 µs. Each backward only checks one flag.
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


SIGNAL = ParallelSignal
