"""How much memory a training may still take before the system ends something: what the machine and its container leave."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

_GROUPS = Path("/sys/fs/cgroup")
_FILES = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))


def measure_headroom(processes: Path = Path("/proc/self/cgroup"), groups: Path = _GROUPS) -> int:
    """Return the bytes that are free: of the machine, or of a memory cgroup above this process if that leaves less."""
    free_bytes = int(psutil.virtual_memory().available)
    for folder in _list_groups(processes, groups):
        for limit, usage in _FILES:
            with suppress(OSError, ValueError):  # no limit here, or a cgroup of the other version
                most = int((folder / limit).read_text("ascii"))
                free_bytes = min(free_bytes, most - int((folder / usage).read_text("ascii")) + _find_cache(folder))
    return free_bytes


def _list_groups(processes: Path, groups: Path) -> list[Path]:
    """Return the folders of the memory cgroups of this process, and of all above them."""
    found = [groups, groups / "memory"]
    with suppress(OSError):
        for line in processes.read_text("utf-8").splitlines():
            _, kinds, path = line.split(":", 2)
            root = groups / "memory" if "memory" in kinds.split(",") else groups
            if not kinds or "memory" in kinds.split(","):
                own = root / path.lstrip("/")
                found += [folder for folder in (own, *own.parents) if folder.is_relative_to(root)]
    return found


def _find_cache(folder: Path) -> int:
    """Return the bytes of a cgroup that hold files and are given up before anything is ended."""
    for line in (folder / "memory.stat").read_text("ascii").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file"):
            return int(value)
    return 0
