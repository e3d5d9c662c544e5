"""What the control group of the training and the kernel say of processors and memory that were short.

Some small files of /proc and /sys/fs/cgroup, about 60 µs together. One that is not there is not read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from collector.sidecar.processes import Rates, Sample

_ROOT = Path("/sys/fs/cgroup")
_PRESSURE = Path("/proc/pressure/memory")


class Pressure:
    """Samples of source `cgroup` and of `system`; nothing where the system tells nothing."""

    def __init__(self, pid: int, root: Path = _ROOT, proc: Path = Path("/proc")) -> None:
        groups = find_groups(pid, root, proc)
        self._processors = next((folder / "cpu.stat" for folder in groups if _is_there(folder / "cpu.stat")), None)
        own = next((file for file in _list_memory(groups) if _is_there(file)), None)
        self._memory = own or (_PRESSURE if _is_there(_PRESSURE) else None)
        self._memory_source = "cgroup" if own is not None else "system"
        self._rates = Rates()
        self._before: tuple[int, int] | None = None

    def sample(self) -> Iterator[Sample]:
        if self._processors is not None:
            yield from self._sample_processors(read_counts(self._processors))
        if self._memory is not None:
            yield from self._sample_memory(self._memory)

    def _sample_processors(self, counts: Mapping[str, int]) -> Iterator[Sample]:
        if "nr_periods" not in counts:
            self._processors = None
            return
        stopped_s = counts.get("throttled_usec", 0) / 1e6 + counts.get("throttled_time", 0) / 1e9
        cores = self._rates.grow(("cgroup", 0, "throttled_cores"), stopped_s)
        now = counts["nr_periods"], counts.get("nr_throttled", 0)
        before, self._before = self._before, now
        if before is None or cores is None or now[0] <= before[0]:
            return
        yield Sample("cgroup", "throttled_frac", min(max((now[1] - before[1]) / (now[0] - before[0]), 0.0), 1.0))
        yield Sample("cgroup", "throttled_cores", cores)

    def _sample_memory(self, file: Path) -> Iterator[Sample]:
        stalled_us = read_stalled_us(file)
        if stalled_us is None:
            self._memory = None
            return
        share = self._rates.grow((self._memory_source, 0, "memory_stall_frac"), stalled_us / 1e6)
        if share is not None:
            yield Sample(self._memory_source, "memory_stall_frac", min(share, 1.0))


def find_groups(pid: int, root: Path, proc: Path) -> list[Path]:
    """Return the folders that may speak of a process's processors, the nearest first.

    In a container the path in /proc may be the host's, and the group's own folder is the root of the mount.
    """
    try:
        lines = (proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mounts = [root]
        elif "cpu" in controllers.split(","):
            mounts = [root / controllers, root / "cpu"]
        else:
            continue
        found += [folder for mount in mounts for folder in (mount / path.lstrip("/"), mount)]
    return found


def _list_memory(groups: list[Path]) -> list[Path]:
    return [folder / "memory.pressure" for folder in groups]


def read_counts(file: Path) -> dict[str, int]:
    """Return the lines `name number` of a file, none where it cannot be read."""
    try:
        fields = [line.split() for line in file.read_text(encoding="ascii").splitlines()]
    except (OSError, ValueError):
        return {}
    return {entry[0]: int(entry[1]) for entry in fields if len(entry) == 2 and entry[1].isdecimal()}


def read_stalled_us(file: Path) -> int | None:
    """Return for how long at least one process has waited for memory, None where the kernel does not say."""
    try:
        first = file.read_text(encoding="ascii").splitlines()[0].split()
    except (OSError, ValueError, IndexError):
        return None
    total = first[-1].removeprefix("total=") if first and first[0] == "some" else ""
    return int(total) if total.isdecimal() else None


def _is_there(file: Path) -> bool:
    try:
        return file.is_file()
    except OSError:
        return False
