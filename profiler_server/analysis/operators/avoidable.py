"""Avoidable work of operators: Python loops over rows, anomaly detection, and convolutions without library code.

A loop over rows shows in rows that are taken out of a tensor one by one (`aten::select` and the like), as many as its
first dimension is long, and in other operators that are called about as often. A call costs the host its own time and
the Python that leads to it. One call for all rows has that cost once, plus the arithmetic of all rows. A phase without
the loop thus has the time of its other operators and of the arithmetic. The other operators take at most what their
window shows, and at least the time of their arithmetic.

Convolutions without library code, such as float64 on processors, copy their input into a matrix with every number once
for each position of the kernel (im2col), and multiply the matrix by the weights. A convolution in float32 needs no such
matrix, and its product takes half as long. Each number of the matrix is written and read once, and multiplied once for
each output channel. The product is therefore C / (C + E) of the time, where both take equally long with E channels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.phases import IN_MODEL
from collector.format.run import RankRun
from profiler_server.analysis.tables import choose, read_rows
from profiler_server.diagnosis.limits.traces import (
    CALL_NS,
    LARGE_CALL_NS,
    LEAST_ROWS,
    LEAST_SEEN_FRAC,
    OF_ROWS_FRAC,
    PYTHON_NS,
)
from profiler_server.facts.steps import AnomalyWork, LoopedPhase, LoopedRows, SlowConvolutions

_TAKEN_IN = ("h2d", *IN_MODEL)
"""Phases in which loops take out rows: `h2d` lies before the first module, `backward` may compute gradients per sample.
"""
_TAKING = ("aten::select", "aten::index", "aten::slice")
_RECURRENT = tuple(f"aten::{kind}{form}" for kind in ("gru", "lstm", "rnn_tanh", "rnn_relu") for form in ("", "_cell"))
"""Operators of recurrent networks. Their loops over time are unavoidable: each step needs the step before."""
_FUSED_RECURRENT = "aten::mkldnn_rnn_layer"
"""An operator that loops over time itself, without an operator call per time step."""
_LAYERS = ("aten::linear", "aten::matmul", "aten::conv1d", "aten::conv2d", "aten::conv3d")
"""Operators whose first input is the data of the network, with samples as first dimension."""
_POINTWISE = tuple(f"aten::{name}" for name in ("add", "sub", "mul", "div", "tanh", "sigmoid", "relu", "gelu", "silu"))
_FLOPS_PER_S, _BYTES_PER_S = 60e9, 10e9
"""Throughput of one core with many rows at once: for products, and for other operators."""
_KEYS = ("phase", "name", "input_shapes")
_SUMMED = ("count", "self_ns", "flops", "moved_bytes")


@dataclass(frozen=True)
class _Group:
    """The calls of one operator with one input shape, as means per step. `rounds` is the calls per micro-batch,
    `least_ns` the least self time in a step."""

    phase: str
    name: str
    shapes: tuple[tuple[int, ...], ...]
    calls: float
    rounds: float
    least_ns: float
    flops: float
    moved_bytes: float

    @property
    def work_ns(self) -> float:
        """Return the time of the arithmetic if it is done for all rows together."""
        if self.flops:
            return self.flops / _FLOPS_PER_S * 1e9
        if self.moved_bytes:
            return self.moved_bytes / _BYTES_PER_S * 1e9
        return max(self.least_ns - LARGE_CALL_NS * self.calls, 0.0)


def find_looped_rows(
    rank: RankRun, phases_ns: Mapping[str, float], micro_batches: int, batch_size: int | None
) -> LoopedRows | None:
    """Return the loop over rows in the detailed training steps, or None.

    `phases_ns` are the phases of the mean step outside of windows. Raises TableBrokenError or NewerSchemaError.
    """
    groups = _read_groups(rank, micro_batches)
    names = {group.name for group in groups}
    taken = [group for group in groups if _takes_rows(group, batch_size)]
    if not taken or (not names.isdisjoint(_RECURRENT) and _FUSED_RECURRENT not in names):
        return None
    rows = _choose_rows(taken, batch_size)
    looped = [group for group in groups if group.rounds >= OF_ROWS_FRAC * rows or _is_of_some(group, rows)]
    often = sorted((group for group in looped if group.phase == "forward"), key=lambda group: -group.least_ns)
    return LoopedRows(
        rows,
        sum(group.calls for group in looped),
        tuple(dict.fromkeys(group.name for group in often)),
        tuple(_measure(phase, phases_ns[phase], groups, looped) for phase in IN_MODEL),
        _is_free(taken, looped, batch_size),
        _holds_batches(often, rows, batch_size or 0),
    )


def _choose_rows(taken: Sequence[_Group], batch_size: int | None) -> int:
    """Return the number of rows of the loop: the batch size if a tensor has it, else the most rows of a tensor. Tensors
    with several dimensions take precedence over lists of single numbers."""
    lengths = [group.shapes[0][0] for group in taken]
    if batch_size is not None and batch_size in lengths:
        return batch_size
    return max([group.shapes[0][0] for group in taken if len(group.shapes[0]) > 1] or lengths)


def _is_of_some(group: _Group, rows: int) -> bool:
    """Return whether all inputs are vectors of at most `rows` numbers, such as the samples of one class."""
    return bool(group.shapes) and all(len(shape) == 1 and shape[0] <= rows for shape in group.shapes)


def _holds_batches(groups: Sequence[_Group], rows: int, batch_size: int) -> bool:
    """Return whether whole batches are inputs in the loop: of layers, or of any operator if the loop is not over
    samples."""
    firsts = {shape[0] for group in groups for shape in group.shapes if len(shape) > 1}
    return batch_size > 1 and (
        batch_size in _find_leading(groups, _LAYERS) or (rows != batch_size and batch_size in firsts)
    )


def _find_leading(groups: Sequence[_Group], names: Sequence[str]) -> set[int]:
    """Return the lengths of the first dimension of these operators' first inputs, if these have several dimensions."""
    inputs = (group.shapes[0] for group in groups if group.name in names and group.shapes)
    return {shape[0] for shape in inputs if len(shape) > 1}


def _read_groups(rank: RankRun, micro_batches: int) -> list[_Group]:
    table = read_rows(rank, "operators", ("step", *_KEYS, *_SUMMED))
    table = table.filter(pc.and_(pc.is_valid(table["step"]), pc.is_in(table["phase"], pa.array(_TAKEN_IN))))
    steps = pc.count_distinct(table["step"]).as_py()
    each = table.group_by(("step", *_KEYS)).aggregate([(name, "sum") for name in _SUMMED])
    sums = each.group_by(_KEYS).aggregate(
        [("count_sum", "sum"), ("self_ns_sum", "min"), ("flops_sum", "mean"), ("moved_bytes_sum", "mean")]
    )
    return [
        _Group(
            phase=row["phase"],
            name=row["name"],
            shapes=_read_shapes(row["input_shapes"]),
            calls=row["count_sum_sum"] / steps,
            rounds=row["count_sum_sum"] / steps / max(micro_batches, 1),
            least_ns=float(row["self_ns_sum_min"]),
            flops=row["flops_sum_mean"] or 0.0,
            moved_bytes=row["moved_bytes_sum_mean"] or 0.0,
        )
        for row in sums.to_pylist()
    ]


def _read_shapes(text: str | None) -> tuple[tuple[int, ...], ...]:
    try:
        return tuple(tuple(int(size) for size in shape) for shape in json.loads(text or "[]") if shape)
    except (ValueError, TypeError, OverflowError):
        return ()


def _takes_rows(group: _Group, batch_size: int | None) -> bool:
    rows, *others = group.shapes[0] if group.shapes else (0,)
    if group.name not in _TAKING or rows < LEAST_ROWS or (group.phase == "backward" and rows != batch_size):
        return False
    # Slices also part columns, such as the gates of a cell: once for each row they are no accident.
    is_more = group.rounds > rows and group.rounds not in others and group.name != "aten::slice"
    return group.rounds == rows or is_more


def _may_take_columns(group: _Group) -> bool:
    """Return whether the loop may be over columns, such as time steps: their number divides the number of calls."""
    rows, *others = group.shapes[0]
    if group.rounds == rows:
        return rows in others
    return any(size >= LEAST_ROWS and size != rows and group.rounds % size == 0 for size in others)


def _is_free(taken: Sequence[_Group], looped: Sequence[_Group], batch_size: int | None) -> bool:
    leading = _find_leading(looped, _POINTWISE)
    return any(
        (group.name == "aten::index" or group.shapes[0][0] == batch_size)
        and not (_may_take_columns(group) and group.shapes[0][0] in leading)
        for group in taken
    )


def _measure(phase: str, phase_ns: float, groups: Sequence[_Group], looped: Sequence[_Group]) -> LoopedPhase:
    loop = [group for group in looped if group.phase == phase]
    if not loop:
        return LoopedPhase(phase, 0.0, 0.0)
    others = [group for group in groups if group.phase == phase and group not in loop]
    # A window shows the others at their slowest: beside the profiler's own work, with cold caches.
    most_ns = sum(
        min(group.least_ns, group.work_ns + CALL_NS * group.calls) + PYTHON_NS * group.calls for group in others
    )
    least_ns = sum(min(group.least_ns, group.work_ns) for group in others)
    # Of a backward, what writes whole tensors of gradients for one row each goes as well: only its products remain.
    work_ns = sum(group.work_ns for group in loop if group.flops or phase == "forward")
    left_ns = work_ns + len(loop) * CALL_NS
    seen_ns = sum(group.least_ns + PYTHON_NS * group.calls for group in loop)
    low_ns = min(phase_ns - most_ns, work_ns + LEAST_SEEN_FRAC * (seen_ns - work_ns))
    high_ns = min(phase_ns - least_ns, seen_ns)
    return LoopedPhase(phase, max(low_ns - left_ns, 0.0), max(high_ns - left_ns, 0.0))


_NODE = "autograd::engine::evaluate_function: "
_CHECKS = ("aten::isnan", "aten::_is_any_true")


def read_anomaly_work(rank: RankRun) -> AnomalyWork | None:
    """Return the work of anomaly detection in the detailed steps, or None without a detailed backward.

    Raises TableBrokenError or NewerSchemaError.
    """
    rows = read_rows(rank, "operators", ("step", "name", "count", "total_ns"))
    rows = rows.filter(pc.is_valid(rows["step"]))
    steps = pc.count_distinct(rows["step"]).as_py()
    nodes = _sum(rows.filter(pc.starts_with(rows["name"].cast(pa.string()), _NODE)), "count")
    return AnomalyWork(nodes / steps, _sum(choose(rows, "name", *_CHECKS), "total_ns") / steps) if nodes else None


def _sum(rows: pa.Table, name: str) -> int:
    return int(pc.sum(rows[name]).as_py() or 0)


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
    """Return the output channels of the weights: the last input with as many dimensions as the first input."""
    try:
        inputs = json.loads(shapes or "")
        return int([shape for shape in inputs if len(shape) == len(inputs[0])][-1][0])
    except (ValueError, TypeError, LookupError):
        return _USUAL_CHANNELS
