"""What the process runs on: the settings that advice refers to, read once at the start.

May import `collector.notes`; looks at torch only if it is there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from collector.notes import Notes


def find_rank() -> tuple[int, int]:
    """Return rank and world size: of the process group if there is one, else of the environment."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    rank, world = _read_int("RANK", 0), _read_int("WORLD_SIZE", 1)
    return rank, max(world, rank + 1)


def count_usable_cores() -> float:
    """Return the cores that this process may use: its affinity, cut by the quota of its control group."""
    try:
        cores = float(len(os.sched_getaffinity(0)))
    except AttributeError:  # pragma: no cover  macOS
        cores = float(os.cpu_count() or 1)
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()[:2]
        if quota != "max":
            cores = min(cores, int(quota) / int(period))
    except (OSError, ValueError):
        pass
    return cores


def describe_environment(notes: Notes) -> None:
    """Fill in devices, cores, threads and the switches of torch."""
    import torch

    notes.cpu_count = os.cpu_count()
    notes.usable_cores = count_usable_cores()
    notes.torch_threads = torch.get_num_threads()
    notes.devices = _list_devices(torch)
    notes.facts |= {
        "matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "deterministic": bool(torch.are_deterministic_algorithms_enabled()),
        "anomaly_mode": bool(torch.is_anomaly_enabled()),
    }


def _list_devices(torch: Any) -> list[dict[str, Any]]:
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
            }
        )
    return devices


def _read_int(name: str, default: int) -> int:
    try:
        return int(os.environ.get(name, default))
    except ValueError:
        return default
