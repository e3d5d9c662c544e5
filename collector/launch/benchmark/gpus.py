"""Choose the devices of a benchmark, and lock the clocks of GPUs at their highest frequency while it runs.

The driver is queried, not CUDA: a CUDA context would take memory from the processes. A separate process locks the
clocks (`main` below). It unlocks them when its standard input ends. The kernel closes that input even if the parent
process is killed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector.edge import say
from collector.format.schema.errors import UsageError

_READY = "ready"
# Not by `-m`: Python warns of a module that its package has imported.
_HOLD = "import sys; from collector.launch.benchmark.gpus import main; sys.exit(main(sys.argv[1:]))"
_DRIVER = Path("/proc/driver/nvidia/gpus")


@dataclass(frozen=True)
class Place:
    """A device of the benchmark. `label` is the suffix of its folders, `visible` its value of CUDA_VISIBLE_DEVICES."""

    label: str
    visible: str

    @property
    def is_gpu(self) -> bool:
        return bool(self.visible)


CPU = Place("cpu", "")


def choose_places(wanted: int | None, environment: Mapping[str, str]) -> tuple[Place, ...]:
    """Return the wanted number of GPUs, one for None; the CPU for 0 or without GPUs. UsageError if too few exist."""
    found = find_gpus(environment)
    if wanted == 0 or not found:
        return (CPU,)
    count = 1 if wanted is None else wanted
    if count > len(found):
        raise UsageError(f"-ng {count} is more than the {len(found)} GPUs that are visible here")
    return tuple(Place(str(number), name) for number, name in enumerate(found[:count]))


def find_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the CUDA_VISIBLE_DEVICES value of each GPU that this process may use."""
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


@contextmanager
def hold_clocks(devices: Sequence[str]) -> Iterator[str]:
    """Lock the clocks of these GPUs at their highest frequency during the block. Yield why that failed, "" if it did
    not."""
    guard = subprocess.Popen(
        [sys.executable, "-c", _HOLD, *devices],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C for the benchmark must not end it before it has let go
    )
    try:
        assert guard.stdout is not None
        answer = guard.stdout.readline().strip()
        yield "" if answer == _READY else answer or "the process that holds the clocks ended"
    finally:
        guard.communicate()


def main(devices: Sequence[str]) -> int:
    """Lock the clocks, print that or a failure, wait for the end of standard input, and restore the clocks. Return the
    exit code."""
    try:
        import pynvml
    except ImportError:
        print("nvidia-ml-py is not installed (pip install nvidia-ml-py)", flush=True)
        return 1
    handles: list[Any] = []
    try:
        pynvml.nvmlInit()
        for device in devices:
            handle = _find(pynvml, device)
            highest = pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM)
            handles.append(handle)  # before it is set: setting it half is undone as well
            pynvml.nvmlDeviceSetGpuLockedClocks(handle, highest, highest)
        print(_READY, flush=True)
        sys.stdin.read()
    except pynvml.NVMLError as error:
        print(f"the driver refuses: {error} (it needs root)", flush=True)
        return 1
    finally:
        for handle in handles:
            _let_go(pynvml, handle)
    return 0


def _find(library: Any, device: str) -> Any:
    if device.isdecimal():
        return library.nvmlDeviceGetHandleByIndex(int(device))
    return library.nvmlDeviceGetHandleByUUID(device)


def _let_go(library: Any, handle: Any) -> None:
    try:
        library.nvmlDeviceResetGpuLockedClocks(handle)
    except library.NVMLError as error:
        say(f"a clock could not be set back: {error}; use nvidia-smi -rgc")
