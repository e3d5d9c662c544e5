"""How near operators come to the peak rates of their device. Arithmetic operations and least bytes follow from shapes.

Achieved = operations / time, on the device if there is one, else on the host. Intensity = operations / least bytes. The
least time is operations / peak or bytes / bandwidth, whichever is longer: the longer one is the bound. The efficiency
is least time / time. Bytes are the minimum for the shapes, so caches can lift an efficiency above 100 %.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Floats
from collector.format.run import RankRun
from collector.format.schema.manifest import Device
from profiler_server.analysis.tables import find_rows


@dataclass(frozen=True)
class Part:
    """One device model. Peaks are in 10^12 operations and 10^9 bytes per second; None for a missing precision."""

    name: str
    pattern: str
    fp32: float
    tf32: float | None
    fp16: float | None
    bf16: float | None
    bandwidth: float
    source: str

    def peak_flops_per_s(self, precision: str) -> float | None:
        """Return the peak for a precision; None if the table lacks the precision."""
        peak = {"fp32": self.fp32, "tf32": self.tf32, "fp16": self.fp16, "bf16": self.bf16}.get(precision)
        return None if peak is None else peak * 1e12

    @property
    def bytes_per_s(self) -> float:
        return self.bandwidth * 1e9


_AMPERE, _ADA = "NVIDIA Ampere GA102 architecture whitepaper", "NVIDIA Ada architecture whitepaper"
_HOPPER, _BLACKWELL = "NVIDIA H100 data sheet", "NVIDIA Blackwell data sheet, HGX B200"
_CDNA3 = "AMD Instinct MI300X data sheet"

PARTS: tuple[Part, ...] = (
    Part("V100S", r"V100S", 16.4, None, 130, None, 1134, "NVIDIA V100S data sheet"),
    Part("V100 PCIe", r"V100.*PCIE", 14, None, 112, None, 900, "NVIDIA V100 data sheet"),
    Part("V100", r"V100", 15.7, None, 125, None, 900, "NVIDIA V100 data sheet, NVLink"),
    Part("T4", r"\bT4\b", 8.1, None, 65, None, 320, "NVIDIA Turing architecture whitepaper"),
    Part("A2", r"\bA2\b", 4.5, 9, 18, 18, 200, "NVIDIA A2 data sheet"),
    Part("A10", r"\bA10\b", 31.2, 62.5, 125, 125, 600, "NVIDIA A10 data sheet"),
    Part("A10G", r"\bA10G\b", 35, 35, 70, 70, 600, "NVIDIA A10G product page of its cloud provider"),
    Part("A30", r"\bA30\b", 10.3, 82, 165, 165, 933, "NVIDIA A30 data sheet"),
    Part("A40", r"\bA40\b", 37.4, 74.8, 149.7, 149.7, 696, "NVIDIA A40 data sheet"),
    Part("A100 80GB PCIe", r"A100.*80GB.*PCIE|A100.*PCIE.*80GB", 19.5, 156, 312, 312, 1935, "NVIDIA A100 data sheet"),
    Part("A100 80GB", r"A[18]00.*80GB", 19.5, 156, 312, 312, 2039, "NVIDIA A100 data sheet"),
    Part("A100 40GB", r"A[18]00", 19.5, 156, 312, 312, 1555, "NVIDIA A100 data sheet"),
    Part("RTX A6000", r"RTX A6000", 38.7, 77.4, 154.8, 154.8, 768, "NVIDIA RTX A6000 data sheet"),
    Part("RTX 3090 Ti", r"RTX 3090 Ti", 40, 40, 80, 80, 1008, _AMPERE),
    Part("RTX 3090", r"RTX 3090", 35.6, 35.6, 71, 71, 936, _AMPERE),
    Part("RTX 3080", r"RTX 3080(?! Ti)", 29.8, 29.8, 59.5, 59.5, 760, _AMPERE),
    Part("L4", r"\bL4\b", 30.3, 60, 121, 121, 300, "NVIDIA L4 data sheet"),
    Part("L40S", r"\bL40S\b", 91.6, 183, 362, 362, 864, "NVIDIA L40S data sheet"),
    Part("L40", r"\bL40\b", 90.5, 90.5, 181, 181, 864, "NVIDIA L40 data sheet"),
    Part("RTX 6000 Ada", r"RTX 6000 Ada", 91.1, 182.1, 364.2, 364.2, 960, "NVIDIA RTX 6000 Ada data sheet"),
    Part("RTX 4090", r"RTX 4090(?! D)", 82.6, 82.6, 165.2, 165.2, 1008, _ADA),
    Part("RTX 4080", r"RTX 4080(?! S)", 48.7, 48.7, 97.5, 97.5, 717, _ADA),
    Part("RTX 5090", r"RTX 5090(?! D)", 104.8, 104.8, 209.5, 209.5, 1792, "NVIDIA RTX Blackwell whitepaper"),
    Part("GH200", r"GH200", 67, 494.7, 989.4, 989.4, 4000, "NVIDIA GH200 data sheet, HBM3"),
    Part("H200", r"\bH200\b", 67, 494.7, 989.4, 989.4, 4800, "NVIDIA H200 data sheet"),
    Part("H100 NVL", r"\bH100 NVL", 60, 417.5, 835.5, 835.5, 3900, _HOPPER),
    Part("H100 PCIe", r"\bH100.*PCIE", 51.2, 378, 756, 756, 2039, "NVIDIA H100 architecture whitepaper"),
    Part("H100 SXM", r"\bH[18]00\b", 66.9, 494.7, 989.4, 989.4, 3352, "NVIDIA H100 architecture whitepaper"),
    Part("H20", r"\bH20\b", 44, 74, 148, 148, 4000, "NVIDIA H20 data sheet"),
    Part("GB200", r"\bGB200\b", 80, 1250, 2500, 2500, 8000, "NVIDIA Blackwell data sheet, GB200 NVL72"),
    Part("B200", r"\bB200\b", 75, 1125, 2250, 2250, 7700, _BLACKWELL),
    Part("MI100", r"\bMI100\b", 46.1, None, 184.6, 92.3, 1229, "AMD Instinct MI100 data sheet, matrix"),
    Part("MI210", r"\bMI210\b", 45.3, None, 181, 181, 1638, "AMD Instinct MI210 data sheet, matrix"),
    Part("MI250X", r"\bMI250X", 47.9, None, 191.5, 191.5, 1638, "AMD Instinct MI250X data sheet, matrix, half a board"),
    Part("MI250", r"\bMI250\b", 45.3, None, 181, 181, 1638, "AMD Instinct MI250 data sheet, matrix, half a board"),
    Part("MI300A", r"\bMI300A", 122.6, 490.3, 980.6, 980.6, 5300, "AMD Instinct MI300A data sheet"),
    Part("MI300X", r"\bMI300X", 163.4, 653.7, 1307.4, 1307.4, 5300, _CDNA3),
    Part("MI325X", r"\bMI325X", 163.4, 653.7, 1307.4, 1307.4, 6000, "AMD Instinct MI325X data sheet"),
    Part("MI350X", r"\bMI350X", 144.2, None, 2306.9, 2306.9, 8000, "AMD Instinct MI350X data sheet"),
    Part("MI355X", r"\bMI355X", 157.3, None, 2516.6, 2516.6, 8000, "AMD Instinct MI355X data sheet"),
)


def find_part(device: str) -> Part | None:
    """Return the first device model that matches a device's name; None without a match."""
    return next((part for part in PARTS if re.search(part.pattern, device, re.IGNORECASE)), None)


KEYS = ("name", "type", "precision")
_PRECISIONS = (("bfloat16", "bf16"), ("half", "fp16"), ("double", "fp64"), ("float8", "fp8"), ("float", "fp32"))
_AS_FP32 = ("int", "list")
"""Types treated as FP32: integers, which run beside FP32, and lists of tensors, whose types the trace lacks."""


@dataclass(frozen=True)
class Roof:
    """The device of a rank by its name in the trace, and its device model; None if the table of models lacks it."""

    device: str
    part: Part | None
    is_rocm: bool


def find_roof(rank: RankRun) -> Roof | None:
    """Return the device that did most of the work; None without device work. Raises as `RankRun.manifest` does."""
    device = _find_busiest(rank)
    return None if device is None else Roof(device.name, find_part(device.name), device.kind == "rocm")


def measure_roofline(operators: pa.Table, on_device: bool, part: Part | None, tf32: frozenset[str]) -> pa.Table:
    """Sum operators with known work by name and precision. The columns are KEYS, count, time_ns, flops, moved_bytes,
    and rates.

    `operators` has name, type, input_dtypes, the times, flops and moved_bytes. `tf32` has the operators whose FP32 is
    computed as TF32. Missing figures are null.
    """
    known = operators.filter(pc.greater(pc.add(pc.fill_null(operators["flops"], 0.0), operators["moved_bytes"]), 0.0))
    known = known.append_column("time_ns", choose_time(known, on_device))
    known = known.filter(pc.greater(known["time_ns"], 0))  # on a device: what the host did does not count
    precision = [
        find_precision(name, dtypes, tf32)
        for name, dtypes in zip(known["name"].to_pylist(), known["input_dtypes"].to_pylist(), strict=True)
    ]
    known = known.append_column("precision", pa.array(precision, pa.string()))
    measures = ("count", "time_ns", "flops", "moved_bytes")
    plain = pa.table({name: known[name].cast(pa.string()) for name in KEYS} | {name: known[name] for name in measures})
    summed = plain.group_by(list(KEYS), use_threads=False).aggregate([(name, "sum") for name in measures])
    summed = summed.rename_columns([*KEYS, *measures])
    return _append_rates(summed, part)


def list_tf32_users(rank: RankRun, roof: Roof | None) -> frozenset[str]:
    """Return the operators that compute FP32 as TF32: most of their kernel time is on NVIDIA's tensor cores.

    AMD's matrix units compute FP32 in full. Without a device (`roof` is None) there are none.
    """
    if roof is None or roof.is_rocm:
        return frozenset()
    kernels = find_rows(rank, "kernels", ("operator", "tensor_core", "total_ns"))
    sums: dict[str, int] = {}
    rows = zip(*(kernels[name].to_pylist() for name in kernels.column_names), strict=True)
    for operator, used, time_ns in rows:
        if operator is not None:
            sums[operator] = sums.get(operator, 0) + (time_ns if used else -time_ns)
    return frozenset(name for name, balance in sums.items() if balance > 0)


def _find_busiest(rank: RankRun) -> Device | None:
    devices = {device.index: device for device in rank.manifest.devices}
    kernels = find_rows(rank, "kernels", ("device", "total_ns"))
    if not kernels.num_rows:
        return None
    busy = kernels.group_by("device", use_threads=False).aggregate([("total_ns", "sum")])
    index = busy.sort_by([("total_ns_sum", "descending")])["device"][0].as_py()
    return devices.get(index) or next(iter(devices.values()), Device(index, ""))


def find_precision(name: str, dtypes: str | None, tf32: frozenset[str]) -> str:
    """Return the precision of the first floating-point argument. Without one: `list` for lists of tensors, else
    `int`.
    """
    for dtype in (dtypes or "").lower().split(","):
        found = next((precision for text, precision in _PRECISIONS if text in dtype), None)
        if found is not None:
            return "tf32" if found == "fp32" and name in tf32 else found
    return "list" if "tensorlist" in (dtypes or "").lower() else "int"


def choose_time(operators: pa.Table, on_device: bool) -> pa.ChunkedArray:
    """Return the time in ns of each call: its own time on the host or device. On a device, a call without work of its
    own gets the time of its callees.
    """
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
    peak = part.peak_flops_per_s("fp32" if precision in _AS_FP32 else precision)
    return float("nan") if peak is None else peak


def _floats(rows: pa.Table, name: str) -> Floats:
    return np.asarray(pc.fill_null(rows[name], 0).to_numpy(), np.float64)


def _append(rows: pa.Table, name: str, values: Floats) -> pa.Table:
    return rows.append_column(name, pa.array(values, pa.float64(), mask=np.isnan(values)))
