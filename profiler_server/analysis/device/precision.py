"""Products and convolutions that the device computes in full precision, without tensor cores."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.run import RankRun
from collector.format.schema.errors import TableMissingError

# cuBLAS and CUTLASS: sgemm, simt; cuDNN: scudnn, the engines and Winograd kernels of float, implicit_convolve_sgemm.
FULL_PRECISION = re.compile(r"sgemm|scudnn|simt_s|_engine<float|winograd\w*<float|(?<!t)f32f32_f32f32_f32")


def find_full_precision(rank: RankRun) -> float | None:
    """Return the share of the kernels' time (collectives left out) that multiplies 32-bit floats in full.

    It is found by the names, as NVIDIA's libraries give them. None without kernels. Raises TableBrokenError.
    """
    try:
        kernels = rank.table("kernels")
    except TableMissingError:
        return None
    kernels = kernels.filter(pc.invert(kernels["collective"]))
    sums = kernels.group_by("name").aggregate([("total_ns", "sum")])
    total = pc.sum(sums["total_ns_sum"]).as_py() or 0
    rows = zip(sums["name"].cast(pa.string()).to_pylist(), sums["total_ns_sum"].to_pylist(), strict=True)
    full = sum(time_ns for name, time_ns in rows if FULL_PRECISION.search(name))
    return full / total if total else None
