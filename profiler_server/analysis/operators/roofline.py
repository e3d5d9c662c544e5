"""How near operators come to what their device can do, from operations and least bytes that shapes tell.

Achieved = operations / time, of the device where there is one, else of the host. Intensity = operations / least bytes.
The least time on a part is the longer of operations / peak and bytes / bandwidth: the longer one is the bound, and
least time / time is the efficiency. Bytes are the least that shapes allow, so caches can lift an efficiency past 100 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Floats
from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from collector.format.schema.manifest import Device
from profiler_server.analysis.device.accelerators import Part, find_part

KEYS = ("name", "type", "precision")
_PRECISIONS = (("bfloat16", "bf16"), ("half", "fp16"), ("double", "fp64"), ("float8", "fp8"), ("float", "fp32"))
_AS_FP32 = ("int", "list")
"""Integers run beside FP32; a trace does not tell what a list of tensors holds, and its work is counted as FP32."""


@dataclass(frozen=True)
class Roof:
    """The device of a rank as its trace names it, and its part where the table has it."""

    device: str
    part: Part | None
    is_rocm: bool


def find_roof(rank: RankRun) -> Roof | None:
    """Return the device that did most of the work, None where nothing ran on one. Raises as `RankRun.manifest` does."""
    device = _find_busiest(rank)
    return None if device is None else Roof(device.name, find_part(device.name), device.kind == "rocm")


def measure_roofline(operators: pa.Table, on_device: bool, part: Part | None, tf32: frozenset[str]) -> pa.Table:
    """Sum operators whose work is known, by name and precision: KEYS, count, time_ns, flops, moved_bytes, and rates.

    `operators` has name, type, input_dtypes, the times, flops and moved_bytes; `tf32` names those operators
    whose FP32 is computed as TF32. Absent figures are null.
    """
    known = operators.filter(pc.greater(pc.add(pc.fill_null(operators["flops"], 0.0), operators["moved_bytes"]), 0.0))
    known = known.append_column("time_ns", _choose_time(known, on_device))
    known = known.filter(pc.greater(known["time_ns"], 0))  # on a device: what the host did does not count
    precision = [
        _find_precision(name, dtypes, tf32)
        for name, dtypes in zip(known["name"].to_pylist(), known["input_dtypes"].to_pylist(), strict=True)
    ]
    known = known.append_column("precision", pa.array(precision, pa.string()))
    measures = ("count", "time_ns", "flops", "moved_bytes")
    plain = pa.table({name: known[name].cast(pa.string()) for name in KEYS} | {name: known[name] for name in measures})
    summed = plain.group_by(list(KEYS), use_threads=False).aggregate([(name, "sum") for name in measures])
    summed = summed.rename_columns([*KEYS, *measures])
    return _append_rates(summed, part)


def list_tf32_users(rank: RankRun, roof: Roof | None) -> frozenset[str]:
    """Return the operators that compute FP32 as TF32: those with most of their kernel time on NVIDIA's tensor cores.

    The matrix units of AMD take FP32 as it is.
    """
    if roof is None or roof.is_rocm:
        return frozenset()
    try:
        kernels = rank.table("kernels", ("operator", "tensor_core", "total_ns"))
    except RunError:
        return frozenset()
    sums: dict[str, int] = {}
    rows = zip(*(kernels[name].to_pylist() for name in kernels.column_names), strict=True)
    for operator, used, time_ns in rows:
        if operator is not None:
            sums[operator] = sums.get(operator, 0) + (time_ns if used else -time_ns)
    return frozenset(name for name, balance in sums.items() if balance > 0)


def _find_busiest(rank: RankRun) -> Device | None:
    devices = {device.index: device for device in rank.manifest.devices}
    try:
        kernels = rank.table("kernels", ("device", "total_ns"))
    except RunError:
        return None
    if not kernels.num_rows:
        return None
    busy = kernels.group_by("device", use_threads=False).aggregate([("total_ns", "sum")])
    index = busy.sort_by([("total_ns_sum", "descending")])["device"][0].as_py()
    return devices.get(index) or next(iter(devices.values()), Device(index, ""))


def _find_precision(name: str, dtypes: str | None, tf32: frozenset[str]) -> str:
    """Return the precision of the first floating-point argument, else what the arguments are."""
    for dtype in (dtypes or "").lower().split(","):
        found = next((precision for text, precision in _PRECISIONS if text in dtype), None)
        if found is not None:
            return "tf32" if found == "fp32" and name in tf32 else found
    return "list" if "tensorlist" in (dtypes or "").lower() else "int"


def _choose_time(operators: pa.Table, on_device: bool) -> pa.ChunkedArray:
    """Return the time that the work took: what the call launched itself, or its callees where it launched nothing."""
    if not on_device:
        return operators["self_ns"]
    own = operators["device_self_ns"]
    return pc.if_else(pc.greater(own, 0), own, operators["device_total_ns"])


def _append_rates(rows: pa.Table, part: Part | None) -> pa.Table:
    seconds = _floats(rows, "time_ns") / 1e9
    flops, moved = _floats(rows, "flops"), _floats(rows, "moved_bytes")
    intensity = np.divide(flops, moved, out=np.full(len(flops), np.nan), where=moved > 0)
    rows = _append(rows, "flops_per_s", flops / seconds)
    rows = _append(rows, "bytes_per_s", moved / seconds)
    rows = _append(rows, "intensity", intensity)
    if part is None:
        return rows.append_column("bound", pa.nulls(len(rows), pa.string())).append_column(
            "efficiency_frac", pa.nulls(len(rows), pa.float64())
        )
    peaks = np.array([_find_peak(part, text) for text in rows["precision"].to_pylist()], np.float64)
    arithmetic, traffic = flops / peaks, moved / part.bytes_per_s
    known = ~np.isnan(arithmetic)
    bound = np.where(arithmetic > traffic, "compute", "memory")
    rows = rows.append_column("bound", pa.array(bound, pa.string(), mask=~known))
    return _append(rows, "efficiency_frac", np.maximum(arithmetic, traffic) / seconds)


def _find_peak(part: Part, precision: str) -> float:
    """Return the peak, NaN for a precision that the part or the table does not have."""
    peak = part.peak_flops_per_s("fp32" if precision in _AS_FP32 else precision)
    return float("nan") if peak is None else peak


def _floats(rows: pa.Table, name: str) -> Floats:
    return np.asarray(pc.fill_null(rows[name], 0).to_numpy(), np.float64)


def _append(rows: pa.Table, name: str, values: Floats) -> pa.Table:
    return rows.append_column(name, pa.array(values, pa.float64(), mask=np.isnan(values)))
