"""The settings of torch that advice refers to, read once at the start: devices, threads, switches."""

from __future__ import annotations

from typing import Any

import torch

from collector.context.signals import SignalContext


class EnvironmentSignal:
    name = "environment"
    option = ""

    def install(self, context: SignalContext) -> None:
        context.notes.torch_threads = torch.get_num_threads()
        context.notes.devices = list_devices()
        context.notes.facts |= {
            "matmul_precision": torch.get_float32_matmul_precision(),
            "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
            "deterministic": bool(torch.are_deterministic_algorithms_enabled()),
            "anomaly_mode": bool(torch.is_anomaly_enabled()),
        }

    def remove(self) -> None:
        pass


def list_devices() -> list[dict[str, Any]]:
    """Return the fields of `schema.manifest.Device` for each CUDA device."""
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
