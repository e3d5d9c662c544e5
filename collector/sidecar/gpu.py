"""Samples for the table `resources`: load, memory, power, temperature, clock and throttling of the GPUs that the
training process uses, read through NVML.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from collector.format.schema.manifest import Signal
from collector.sidecar.usage import Sample

INSTALL = "Install nvidia-ml-py (`pip install nvidia-ml-py`) to see its power, utilisation, temperature and clock."
POWER, HEAT, OTHER = 1, 2, 4
"""Flags of the metric `throttle_flags`: the reasons for a lowered GPU clock."""
# NVML's bits, the same under both of their names: limits in software, then those in hardware.
_THROTTLING = {POWER: 0x04 | 0x80, HEAT: 0x20 | 0x40}
# Set beside the bits above too: it says no more than that the hardware slows down.
_HARDWARE_SLOWDOWN = 0x08
_log = logging.getLogger("stepscope")


class Gpus:
    """The GPUs of one rank. `visible` is CUDA_VISIBLE_DEVICES of the training process, None if it is not set. The
    attribute `signal` says why no GPU is sampled, None if nothing is wrong.

    CUDA orders GPUs by speed and visibility, NVML by bus address. So the UUID in the notes of the training process
    identifies a GPU. Without a UUID, the entries of CUDA_VISIBLE_DEVICES do.
    """

    def __init__(self, devices: Sequence[dict[str, Any]], visible: str | None, pid: int, library: Any = None) -> None:
        self._handles: dict[int, Any] = {}
        self.signal: Signal | None = None
        wanted = [device for device in devices if device.get("kind", "cuda") == "cuda"]
        if not wanted:
            return
        self._library = library or _load_library()
        if self._library is None:
            self.signal = Signal("gpu", "unavailable", f"The GPU was not sampled. {INSTALL}")
            return
        try:
            self._library.nvmlInit()
            found = {int(device["index"]): self._find(device, visible) for device in wanted}
            self._handles = self._keep_used(found, pid)
        except self._library.NVMLError as error:
            self.signal = Signal("gpu", "unavailable", f"The GPU was not sampled: NVML says {error}.")

    def sample(self) -> Iterator[Sample]:
        """Yield the metrics of every GPU. A metric that a GPU lacks is left out."""
        for index, handle in self._handles.items():
            for metric, read in self._readings(handle).items():
                value = self._try(read)
                if value is not None:
                    yield Sample(f"gpu {index}", metric, value)

    def _try(self, read: Callable[[], float]) -> float | None:
        try:
            return float(read())
        except self._library.NVMLError as error:
            _log.debug("stepscope: a GPU does not have this figure: %s", error)
            return None

    def _readings(self, handle: Any) -> dict[str, Callable[[], float]]:
        nvml = self._library
        return {
            "utilization_frac": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100.0,
            "memory_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
            "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0,
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
            "clock_hz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6,
            "throttle_flags": lambda: read_throttling(self._ask_reasons(handle)),
        }

    def _ask_reasons(self, handle: Any) -> int:
        """Return NVML's bits for the reasons of a lowered clock. The NVML call has two names, depending on the version."""
        nvml = self._library
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            if hasattr(nvml, name):
                return int(getattr(nvml, name)(handle))
        raise nvml.NVMLError(nvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    def _find(self, device: dict[str, Any], visible: str | None) -> Any:
        nvml, index = self._library, int(device["index"])
        uuid = str(device.get("uuid") or "")
        if uuid:
            return nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")
        name = pick_visible(visible, index)
        if name.isdecimal():
            return nvml.nvmlDeviceGetHandleByIndex(int(name))
        return nvml.nvmlDeviceGetHandleByUUID(name)

    def _keep_used(self, found: dict[int, Any], pid: int) -> dict[int, Any]:
        used = {}
        for index, handle in found.items():
            try:
                running = self._library.nvmlDeviceGetComputeRunningProcesses(handle)
            except self._library.NVMLError:
                return found
            if any(process.pid == pid for process in running):
                used[index] = handle
        return used or found


def read_throttling(reasons: int) -> int:
    """Return `throttle_flags` for NVML's reasons of a lowered clock; idleness and a clock set by hand give 0."""
    flags = sum(flag for flag, bits in _THROTTLING.items() if reasons & bits)
    return flags or (OTHER if reasons & _HARDWARE_SLOWDOWN else 0)


def pick_visible(visible: str | None, index: int) -> str:
    """Return entry number `index` of CUDA_VISIBLE_DEVICES (a GPU number or a UUID); `index` itself without an entry."""
    if visible is None:
        return str(index)
    entries = [entry.strip() for entry in visible.split(",")]
    return entries[index] if index < len(entries) and entries[index] else str(index)


def _load_library() -> Any:
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml
