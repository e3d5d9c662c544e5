"""Which devices a benchmark uses. Asks the driver, never CUDA: a context here would take memory from the processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from collector.format.schema.errors import UsageError

_DRIVER = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Place:
    """A device of the benchmark. `label` ends the folders' names; `visible` is CUDA_VISIBLE_DEVICES for it."""

    label: str
    visible: str

    @property
    def is_gpu(self) -> bool:
        return bool(self.visible)


CPU = Place("cpu", "")


def choose_places(wanted: int | None, environment: Mapping[str, str]) -> tuple[Place, ...]:
    """Return so many GPUs, by default one; the CPU if none is wanted or there is none. UsageError for more than there are."""
    found = find_gpus(environment)
    if wanted == 0 or not found:
        return (CPU,)
    count = 1 if wanted is None else wanted
    if count > len(found):
        raise UsageError(f"-ng {count} is more than the {len(found)} GPUs that are visible here")
    return tuple(Place(str(number), name) for number, name in enumerate(found[:count]))


def find_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return what CUDA_VISIBLE_DEVICES may be set to for each GPU that this process may use."""
    count = _count_gpus()
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(str(number) for number in range(count))
    entries: list[str] = []
    for entry in (part.strip() for part in visible.split(",")):
        if not entry or (entry.lstrip("-").isdecimal() and not 0 <= int(entry) < count):
            break  # as CUDA does: what follows an entry that is no device is not visible
        entries.append(entry)
    return tuple(entries) if count else ()


def _count_gpus() -> int:
    try:
        import pynvml
    except ImportError:
        return len(list(_DRIVER.iterdir())) if _DRIVER.is_dir() else 0
    try:
        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetCount())
    except pynvml.NVMLError:
        return 0
