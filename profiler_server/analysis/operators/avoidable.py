"""Avoidable work of operators: anomaly detection, padding, and convolutions without library code.

Libraries have no code for some convolutions, such as those in float64 on processors. PyTorch then copies the input into
a matrix that holds every number once for each position of the kernel (im2col), and multiplies this matrix by the
weights. A convolution in float32 needs no such matrix, and its product takes half as long. Each number of the matrix is
written and read once, and multiplied once for each output channel. Let C be the number of output channels. Let E be the
number of channels for which copying and product take equally long. Then the product takes C / (C + E) of the time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.phases import IN_MODEL
from collector.format.run import RankRun
from profiler_server.analysis.tables import choose, read_rows
from profiler_server.facts.steps import AnomalyWork, SlowConvolutions

_NODE = "autograd::engine::evaluate_function: "
_CHECKS = ("aten::isnan", "aten::_is_any_true")


def read_anomaly_work(rank: RankRun) -> AnomalyWork | None:
    """Return the work of anomaly detection in the detailed steps; None if no backward was recorded in detail.

    Raises TableBrokenError or NewerSchemaError.
    """
    rows = read_rows(rank, "operators", ("step", "name", "count", "total_ns"))
    rows = rows.filter(pc.is_valid(rows["step"]))
    steps = pc.count_distinct(rows["step"]).as_py()
    nodes = _sum(rows.filter(pc.starts_with(rows["name"].cast(pa.string()), _NODE)), "count")
    return AnomalyWork(nodes / steps, _sum(choose(rows, "name", *_CHECKS), "total_ns") / steps) if nodes else None


def _sum(rows: pa.Table, name: str) -> int:
    return int(pc.sum(rows[name]).as_py() or 0)


_PACKING = ("aten::_pack_padded_sequence", "aten::_nested_tensor_from_mask", "aten::_nested_tensor_from_tensor_list")
"""Operators that leave padding out of what follows."""
_CALL_NS = 5_000
"""The time of a call of an operator that does not depend on the size of its tensors."""
_LEAST_WIDTH = 16
"""Positions behind strides: fewer are also the sizes of other dimensions."""
_LARGEST_LAYER = 8192
"""Longer dimensions are no features of a layer."""
_NUMBER = re.compile(r"\d+", re.ASCII)
_SHAPE = re.compile(r"\[([\d,]*)\]", re.ASCII)
_PRODUCT = re.compile(r"mm\b|matmul|bmm")


def find_wide_shares(rank: RankRun, width: int, rows: int) -> tuple[float, float] | None:
    """Return two shares of operator time in forward and backward: of operators whose time grows with the `width` of a
    batch (its length after padding), and of operators whose time grows with the square of the width. None without a
    detailed window.

    The first `_CALL_NS` of each call do not grow, and neither does the time between the operators. The rest of an
    operator's time grows with the width if a dimension of an input is as wide as the batch, or a half or a quarter as wide (after
    strides), or if the operator is called once for each position. It grows with the square if two dimensions are that
    wide, as in attention. Both shares are 0 if the script packs sequences. `rows` is the number of samples of a batch.

    With a device, the times are those of kernels, and the shares are of all that it computed in the steps.
    """
    found = read_rows(
        rank, "operators", ("step", "phase", "name", "input_shapes", "count", "self_ns", "device_self_ns")
    )
    device_ns = _sum(found.filter(pc.is_valid(found["step"])), "device_self_ns")
    own, call_ns = ("device_self_ns", 0) if device_ns else ("self_ns", _CALL_NS)
    found = found.filter(pc.and_(pc.is_valid(found["step"]), pc.is_in(found["phase"], pa.array(IN_MODEL))))
    if not found.num_rows:
        return None
    if choose(found, "name", *_PACKING).num_rows:
        return 0.0, 0.0
    widths = {-(-width // stride) for stride in (1, 2, 4) if width >= _LEAST_WIDTH * stride} | {width}
    joined = {width * rows: 1, **({width**2 * rows: 2} if width**2 * rows > _LARGEST_LAYER else {})}
    grown_ns = [0, 0, 0]
    for row in found.to_pylist():
        power = _count_wide(row["name"], row["input_shapes"], widths, joined)
        fixed_ns = min(row["count"] * call_ns, row[own])
        grown_ns[0] += fixed_ns
        grown_ns[max(power, int(row["count"] >= width))] += row[own] - fixed_ns
    whole_ns = max(sum(grown_ns), device_ns or _sum_phases(rank, found), 1)
    return grown_ns[1] / whole_ns, grown_ns[2] / whole_ns


def _sum_phases(rank: RankRun, operators: pa.Table) -> int:
    """Return the time of forward and backward in the steps of the operators, with Python between the operators."""
    rows = read_rows(rank, "steps", ("step", *(f"{name}_ns" for name in IN_MODEL)))
    rows = rows.filter(pc.is_in(rows["step"], pc.unique(operators["step"].combine_chunks())))
    return sum(_sum(rows, f"{name}_ns") for name in IN_MODEL)


def _count_wide(name: str, shapes: str | None, widths: Iterable[int], joined: Mapping[int, int]) -> int:
    """Return how many dimensions that an operator loops over are as long as the batch is wide, at most two.

    Only lengths that equal the same one of `widths` count together, because another dimension may have half of a width
    by chance. `joined` maps the length of a flattened dimension, such as samples × width, to the number of widths in
    it. A product of matrices loops over the dimensions of the first and the columns of the second.
    """
    inputs = [list(map(int, _NUMBER.findall(shape))) for shape in _SHAPE.findall(shapes or "")]
    counts = [shape.count(width) for shape in inputs for width in widths]
    counts += [joined.get(length, 0) for shape in inputs for length in shape]
    if _PRODUCT.search(name) and len(inputs) > 1 and inputs[-1]:
        counts += [inputs[-2].count(width) + (inputs[-1][-1] == width) for width in widths]
    most = max(counts, default=0)
    return 2 if most and "attention" in name else min(most, 2)


_NAME = "_slow_conv"
_EVEN_CHANNELS = 80
"""The measured E of two programs on two virtual cores: 2.2 ns for a matrix number, 72 GFLOP/s in the product."""
_PRODUCT_SAVED_FRAC = 0.5
_USUAL_CHANNELS = 64
"""Assumed channels if the shapes were not recorded."""


def find_slow_convolutions(rank: RankRun) -> SlowConvolutions:
    """Return the share of operator time in slow convolutions, and the share of this time that float32 would save.

    The figures are of the detailed windows. Raises TableBrokenError or NewerSchemaError.
    """
    operators = read_rows(rank, "operators", ("name", "input_shapes", "self_ns"))
    total_ns = pc.sum(operators["self_ns"]).as_py()
    rows = operators.filter(pc.match_substring(operators["name"].cast(pa.string()), _NAME)).to_pylist()
    slow_ns = sum(row["self_ns"] for row in rows)
    if not slow_ns or not total_ns:
        return SlowConvolutions()
    channels = [_read_channels(row["input_shapes"]) for row in rows]
    products = [count / (count + _EVEN_CHANNELS) for count in channels]
    product_ns = sum(row["self_ns"] * product for row, product in zip(rows, products, strict=True))
    return SlowConvolutions(slow_ns / total_ns, 1.0 - _PRODUCT_SAVED_FRAC * product_ns / slow_ns)


def _read_channels(shapes: str | None) -> int:
    """Return the number of output channels, from the weights: the last input with as many dimensions as the first."""
    try:
        inputs = json.loads(shapes or "")
        return int([shape for shape in inputs if len(shape) == len(inputs[0])][-1][0])
    except (ValueError, TypeError, LookupError):
        return _USUAL_CHANNELS
