"""Record the compute settings of torch, to which advice refers: devices, threads and switches."""

from __future__ import annotations

import os
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch

from collector.context.signals import Signal, SignalContext
from collector.format.switches import SWITCHES, Switch

NODES = Path("/sys/devices/system/node")
READ_AFTER = (1, 20, 200)
"""Numbers of steps after which the settings are read again."""


class EnvironmentSignal(Signal):
    """The signal of torch settings that advice refers to.

    A script may change the settings late. So they are read at the start, again after some steps, and at the end. A
    switch that was not as PyTorch starts at any of these times counts as changed.
    """

    name = "environment"

    def install(self, context: SignalContext) -> None:
        self._context = context
        context.notes.devices = list_devices()
        context.notes.facts["numa_nodes"] = count_memory_nodes(NODES)
        self._read()
        context.save_now_and_then(self.name, self._read, READ_AFTER)

    def _read(self) -> None:
        notes, found = self._context.notes, read_settings()
        found |= {name: changed for name, changed in _CHANGED.items() if notes.facts.get(name) is changed}
        threads = torch.get_num_threads()
        if notes.torch_threads == threads and all(notes.facts.get(name) == value for name, value in found.items()):
            return
        notes.torch_threads = threads
        notes.facts |= found
        self._context.save_notes()


_CHANGED = {"anomaly_mode": True, **{each.name: not each.usual for each in SWITCHES}}


def read_settings() -> dict[str, Any]:
    """Return the current settings of torch, by the names of their facts in rank.json."""
    return {
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "anomaly_mode": bool(torch.is_anomaly_enabled()),
        **{each.name: _read_switch(each) for each in SWITCHES},
    }


def _read_switch(switch: Switch) -> bool:
    try:
        value = attrgetter(switch.path)(torch)
    except AttributeError:  # a PyTorch without this switch
        return switch.usual
    return bool(value() if callable(value) else value)


def count_memory_nodes(folder: Path) -> int | None:
    """Return the number of memory nodes whose processors this process may use; None if the system does not report it."""
    try:
        own = os.sched_getaffinity(0)
        lists = [(node / "cpulist").read_text(encoding="ascii") for node in folder.glob("node[0-9]*")]
        return sum(bool(own & _read_processors(text)) for text in lists) or None
    except (OSError, ValueError, AttributeError):
        return None


def _read_processors(text: str) -> set[int]:
    ends = [part.partition("-") for part in text.strip().split(",") if part]
    return {number for first, _, last in ends for number in range(int(first), int(last or first) + 1)}


def list_devices() -> list[dict[str, Any]]:
    """Return the fields of `schema.manifest.Device` for each CUDA device; an empty list without one."""
    if not torch.cuda.is_available():
        return []
    devices = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        devices.append(
            {
                "index": index,
                "name": properties.name,
                "kind": "cuda",
                "memory_bytes": properties.total_memory,
                "multiprocessors": properties.multi_processor_count,
                "compute_capability": f"{properties.major}.{properties.minor}",
                "uuid": str(getattr(properties, "uuid", "")),  # what NVML knows the device by
            }
        )
    return devices


SIGNAL = EnvironmentSignal
