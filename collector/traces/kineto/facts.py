"""The facts in a trace about its process: rank, devices, versions, time base.

No content of a file may make this module raise.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from collector.format.schema.manifest import Device
from collector.format.schema.reading import read_count
from collector.traces.kineto.classify.kinds import Kind
from collector.traces.kineto.classify.trace import Trace

_RANK_IN_NAME = re.compile(r"rank[_\-.]?(\d{1,7})", re.IGNORECASE)
_LOADER = re.compile(r"enumerate\(DataLoader\)#_(SingleProcess|MultiProcessing)DataLoaderIter")
_LOADERS = {"SingleProcess": "single_process", "MultiProcessing": "workers"}
# 2001 and 2286 in ns. A time between them is a wall-clock time, and a smaller time counts from the start of a machine.
_WALL_CLOCK_NS = (1_000_000_000 * 10**9, 9_000_000_000 * 10**9)
_MOST_DEVICES = 1024
_VERSION_KEYS = ("cuda_runtime_version", "cuda_driver_version", "hip_runtime_version", "cupti_version", "schemaVersion")


def read_base_ns(metadata: dict[str, Any]) -> int:
    """Return the offset in ns from the file's times to wall-clock times, 0 if the file has none."""
    base = metadata.get("baseTimeNanoseconds", metadata.get("baseTimeNanosecond", 0))
    try:
        return min(max(int(base), 0), 1 << 62)
    except (TypeError, ValueError, OverflowError):
        return 0


def is_wall_clock(time_ns: int) -> bool:
    return _WALL_CLOCK_NS[0] < time_ns < _WALL_CLOCK_NS[1]


def read_ranks(metadata: dict[str, Any], path: Path) -> tuple[int | None, int | None]:
    """Return rank and world size from `distributedInfo`. If the rank is missing there, take it from the file's name."""
    info = metadata.get("distributedInfo")
    if isinstance(info, str):
        with suppress(msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            info = msgspec.json.decode(info)
    info = info if isinstance(info, dict) else {}
    rank = _to_count(info.get("rank"))
    if rank is None:
        match = _RANK_IN_NAME.search(path.name)
        rank = int(match.group(1)) if match else None
    return rank, _to_count(info.get("world_size"))


def read_devices(metadata: dict[str, Any]) -> tuple[Device, ...]:
    listed = metadata.get("deviceProperties")
    if not isinstance(listed, list):
        return ()
    return tuple(
        _read_device(entry, index) for index, entry in enumerate(listed[:_MOST_DEVICES]) if isinstance(entry, dict)
    )


def name_devices(trace: Trace) -> tuple[Device, ...]:
    """Return the devices of device work, for a file that describes no device. Only number and kind are known."""
    found = trace.list_distinct(trace.lanes.device, trace.is_device_work)
    calls = trace.list_distinct(trace.columns.name, trace.kind == Kind.RUNTIME) if found else []
    kind = "rocm" if any(trace.names[code].startswith("hip") for code in calls) else "cuda"
    return tuple(Device(number, "", kind) for number in found[:_MOST_DEVICES] if number >= 0)


def read_versions(metadata: dict[str, Any]) -> dict[str, str]:
    return {key: str(metadata[key])[:100] for key in _VERSION_KEYS if key in metadata}


def read_loader(names: Iterable[object]) -> str | None:
    """Return "single_process" or "workers", judged by the names of loader iterators; None for neither or both."""
    kinds = {match.group(1) for name in names if (match := _LOADER.search(str(name)))}
    return _LOADERS[kinds.pop()] if len(kinds) == 1 else None


def _read_device(entry: dict[str, Any], index: int) -> Device:
    number = _to_count(entry.get("id"))
    major, minor = _to_count(entry.get("computeMajor")), _to_count(entry.get("computeMinor"))
    name = str(entry.get("name") or "")[:200]
    return Device(
        index if number is None else number,
        name,
        "rocm" if "AMD" in name or entry.get("warpSize") == 64 else "cuda",
        _to_count(entry.get("totalGlobalMem")),
        _to_count(entry.get("numSms")),
        None if major is None else f"{major}.{minor or 0}",
    )


def _to_count(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 19:
        value = int(value)
    return read_count(value)
