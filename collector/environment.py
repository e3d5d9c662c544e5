"""Find out what a recording notes about its process: rank, usable processor cores, versions of torch and CUDA.

torch is used only if the process has imported it already.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

PATH_VARIABLE = "PROFILER_OUTPUT_PATH"
DEFAULT_PATH = "profiler_output"
_MOST_RANKS = 1 << 24
"""A larger number in a variable, or a negative number, is a mistake and not a rank."""
_RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("LOCAL_RANK", "WORLD_SIZE"),  # Lightning's own launcher, on one node
)
"""Environment variables in which launchers give the rank, the most exact first."""


def find_rank() -> tuple[int, int]:
    """Return rank and world size: from the process group if there is one, else from launchers' variables, else 0, 1."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    for rank_name, world_name in _RANK_VARIABLES:
        if rank_name in os.environ:
            rank = _read_int(rank_name, 0)
            return rank, max(_read_int(world_name, 1), rank + 1)
    return 0, max(_read_int("WORLD_SIZE", 1), 1)


def is_main_interpreter() -> bool:
    # No module with a documented name knows it; the second name is that of Python before 3.13. A build may have neither.
    name = "_interpreters" if find_spec("_interpreters") else "_xxsubinterpreters"
    try:
        interpreters = import_module(name)
        return bool(interpreters.get_current() == interpreters.get_main())
    except (ImportError, AttributeError):
        return True


def count_usable_cores() -> float:
    """Return how many processor cores this process may use: those of its affinity, at most its cgroup's quota."""
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


def find_versions() -> tuple[str | None, str | None]:
    """Return the versions of torch and CUDA, without importing torch; None for an unknown version."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return str(torch.__version__), torch.version.cuda
    try:
        return version("torch"), None
    except PackageNotFoundError:
        return None, None


def _read_int(name: str, default: int) -> int:
    try:
        value = int(os.environ.get(name, default))
    except ValueError:
        return default
    return value if 0 <= value < _MOST_RANKS else default
