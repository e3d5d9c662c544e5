"""The model FLOPs utilisation of a rank, or the reason why it is unknown."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.rank import read_step_rows
from collector.format.run import RankRun
from collector.format.steps import summarize_steps
from profiler_server.analysis.operators.roofline import (
    Roof,
    choose_time,
    find_precision,
    find_roof,
    list_tf32_users,
)
from profiler_server.analysis.tables import find_rows, is_text
from profiler_server.derive.derived import derived
from profiler_server.diagnosis.limits.traces import COVERED_PRODUCTS_FRAC, LEAST_PRODUCTS_FRAC
from profiler_server.facts.useful import ModelUse
from profiler_server.format import format_share

_FAMILIES = ("matmul", "convolution", "attention")
_OPERATORS = ("step", "name", "type", "phase", "input_dtypes", "flops", "device_self_ns", "device_total_ns")
_PRODUCTS = re.compile(
    r"gemm|cutlass|cublas|nvjet|wgmma|Cijk_|_mm_|\bmm\b|matmul|gemv|dgrad|wgrad|fprop|conv|attn|attention|flash|fmha"
    r"|implicit|winograd|xmma|triton_tem",
    re.IGNORECASE,
)
"""Kernels that multiply, by their names in the libraries of NVIDIA and AMD, and in Triton."""
_QUANTISED = re.compile(
    r"quantize|_scaled_mm|_int_mm|_weight_int\d|bitsandbytes|bnb::|marlin|awq|gptq|float8|fp8|int8|4bit", re.IGNORECASE
)


@derived()
def measure_mfu(rank: RankRun) -> ModelUse | None:
    """Return the utilisation; None without a step whose operators were recorded. Raises as `RankRun.table` does."""
    rows = find_rows(rank, "operators", _OPERATORS)
    rows = rows.filter(pc.is_valid(rows["step"]))
    times = summarize_steps(read_step_rows(rank).steps).duration_ns if rows.num_rows else None
    if times is None:
        return None
    roof = find_roof(rank)
    used = pc.and_(is_text(rows, "type", *_FAMILIES), pc.invert(is_text(rows, "phase", "optimizer")))
    products = rows.filter(pc.and_(used, pc.greater(pc.fill_null(rows["flops"], 0.0), 0.0)))
    steps = pc.count_distinct(rows["step"]).as_py()
    use = ModelUse(
        None,
        flops_per_step=(pc.sum(products["flops"]).as_py() or 0.0) / steps,
        step_ns=times.mean,
        device=roof.device if roof is not None else "",
        steps=steps,
    )
    if quantised := _name_quantised(rows):
        return replace(use, missing=f"the model is quantised ({quantised[:60]}), so no one peak holds")
    if roof is None:
        return replace(use, missing="no device was in use, and no peak of a processor is known")
    use = _cover(rank, products, use)
    return use if use.missing else _divide(rank, products, use, roof)


def _name_quantised(rows: pa.Table) -> str:
    names = pc.unique(rows["name"].cast(pa.string())).to_pylist()
    return min((name for name in names if _QUANTISED.search(name)), key=len, default="")


def _cover(rank: RankRun, products: pa.Table, use: ModelUse) -> ModelUse:
    """Return `use` with the share of the time that known operations cover, and with a reason if it is too small."""
    covered_ns = pc.sum(choose_time(products, True)).as_py() or 0
    kernel_ns, busy_ns = _sum_kernels(rank)
    covered = min(covered_ns / kernel_ns, 1.0) if kernel_ns else 0.0
    if covered >= COVERED_PRODUCTS_FRAC and covered_ns >= LEAST_PRODUCTS_FRAC * busy_ns:
        return replace(use, covered_frac=covered)
    share = format_share(covered_ns / busy_ns if busy_ns else 0.0)
    known = f"operations are known for {format_share(covered)} of the time of kernels that multiply"
    return replace(use, missing=f"{known}, and {share} of all kernels", covered_frac=covered, flops_per_step=None)


def _divide(rank: RankRun, products: pa.Table, use: ModelUse, roof: Roof) -> ModelUse:
    flops = _sum_by_precision(products, list_tf32_users(rank, roof))
    peaks = {name: None if roof.part is None else roof.part.peak_flops_per_s(name) for name in flops}
    unknown = [name for name, peak in peaks.items() if peak is None]
    if roof.part is None or unknown:
        precisions = f" for {', '.join(unknown)}" if roof.part is not None else ""
        return replace(use, missing=f"the peak of {roof.device or 'the device'}{precisions} is not known")
    whole, at_peak_s = sum(flops.values()), sum(flops[name] / peak for name, peak in peaks.items() if peak is not None)
    return replace(
        use,
        frac=at_peak_s / use.steps / ((use.step_ns or math.inf) / 1e9),
        peak_flops_per_s=whole / at_peak_s,
        precisions={name: value / whole for name, value in flops.items()},
        source=roof.part.source,
    )


def _sum_by_precision(products: pa.Table, tf32: frozenset[str]) -> Mapping[str, float]:
    sums: dict[str, float] = {}
    columns = (products[name].to_pylist() for name in ("name", "input_dtypes", "flops"))
    for name, dtypes, flops in zip(*columns, strict=True):
        precision = find_precision(name, dtypes, tf32)
        sums[precision] = sums.get(precision, 0.0) + flops
    return dict(sorted(sums.items(), key=lambda entry: -entry[1]))


def _sum_kernels(rank: RankRun) -> tuple[int, int]:
    """Return the time of the kernels that multiply, and of all kernels but collectives, in steps."""
    rows = find_rows(rank, "kernels", ("step", "name", "tensor_core", "collective", "total_ns"))
    rows = rows.filter(pc.and_(pc.is_valid(rows["step"]), pc.invert(rows["collective"])))
    keys = pa.table({"name": rows["name"].cast(pa.string()), **{k: rows[k] for k in ("tensor_core", "total_ns")}})
    sums = keys.group_by(["name", "tensor_core"], use_threads=False).aggregate([("total_ns", "sum")])
    columns = (sums[name].to_pylist() for name in ("name", "tensor_core", "total_ns_sum"))
    entries = [(used or bool(_PRODUCTS.search(name)), time_ns) for name, used, time_ns in zip(*columns, strict=True)]
    return sum(time_ns for multiplies, time_ns in entries if multiplies), sum(time_ns for _, time_ns in entries)
