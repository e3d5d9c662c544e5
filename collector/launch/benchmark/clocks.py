"""Hold GPUs at their highest clock, and let go whatever happens.

A process of its own holds them: `python -m collector.launch.benchmark.clocks DEVICE …`. It lets go when its standard
input ends, which the kernel sees to when the process that started it dies, however it dies.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

READY = "ready"


@contextmanager
def hold_clocks(devices: Sequence[str]) -> Iterator[str]:
    """Hold the clocks while the block runs. Yields what went wrong, empty if nothing did."""
    guard = subprocess.Popen(
        [sys.executable, "-m", "collector.launch.benchmark.clocks", *devices],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C for the benchmark must not end it before it has let go
    )
    try:
        assert guard.stdout is not None
        answer = guard.stdout.readline().strip()
        yield "" if answer == READY else answer or "the process that holds the clocks ended"
    finally:
        guard.communicate()


def main(devices: Sequence[str]) -> int:
    """Set the clocks, say so, wait for the end of standard input, and set them back."""
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
        print(READY, flush=True)
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
        print(f"profiler-run: a clock could not be set back: {error}; use nvidia-smi -rgc", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
