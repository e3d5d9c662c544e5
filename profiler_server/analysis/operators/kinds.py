"""The work that depends on settings: convolutions and their memory format, attention, lookups, small and large
operators.

Attention is recognised by its shapes. A product makes a matrix of scores, a softmax works on the matrix, and another
product takes it. All operators on a matrix of this size belong to attention. With a device, times of convolutions and
attention are those of the device.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from collector.format import stored_files
from collector.format.run import RankRun
from profiler_server.analysis.tables import read_rows
from profiler_server.derive.derived import AT_ONCE_SLICES, count_slices
from profiler_server.diagnosis.limits.knobs import LARGE_FLOPS, SLOW_FLOPS_PER_NS
from profiler_server.diagnosis.limits.lines import SMALL_NS
from profiler_server.diagnosis.limits.traces import PARALLEL_NS
from profiler_server.facts.steps import Kinds

Shape = tuple[int, ...]
_KEYS = ("name", "type", "phase", "input_shapes")
_SUMMED = ("count", "total_ns", "self_ns", "device_total_ns", "device_self_ns")
_CONVOLUTIONS = frozenset(("aten::convolution", "aten::convolution_backward"))
_SOFTMAX = frozenset(("aten::_softmax", "aten::_safe_softmax"))
_PRODUCTS = frozenset(("aten::bmm", "aten::baddbmm", "aten::baddbmm_"))
_FALLBACK = "aten::_scaled_dot_product_attention_math"
_DROPOUT = frozenset(("aten::bernoulli_", "aten::native_dropout"))
_LOOKUPS = frozenset(("aten::embedding", "aten::_embedding_bag"))
_DENSE = re.compile(r"aten::_?embedding(_bag)?_dense_backward")
_MATRICES = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
_LAYERS = frozenset(("aten::linear", "aten::mm", "aten::addmm", "aten::matmul"))
_POINTWISE = frozenset(("elementwise", "activation"))
_ZEROING = frozenset(("aten::zero_", "aten::_foreach_zero_"))
_FACTORISING = re.compile(
    r"aten::_?(linalg_(cholesky|inv|solve|lu|ldl|eig|svd|slogdet|det|qr|lstsq)|cholesky|triangular_solve|logdet|inverse)\w*"
)
_MOST_READ = 400


@dataclass(frozen=True)
class _Group:
    """The calls of an operator with the same input shapes in a phase, in all detailed steps."""

    name: str
    type: str
    phase: str | None
    shapes: tuple[Shape, ...]
    count: int
    total_ns: int
    self_ns: int


def find_kinds(rank: RankRun) -> Kinds:
    """Return the work of the detailed steps that depends on settings. Raises TableBrokenError or NewerSchemaError."""
    rows = read_rows(rank, "operators", ("step", *_KEYS, *_SUMMED, "flops", "input_dtypes"))
    rows = rows.filter(pc.is_valid(rows["step"]))
    steps = read_rows(rank, "steps", ("step", "duration_ns"))
    steps = steps.filter(pc.is_in(steps["step"], pc.unique(rows["step"])))
    whole_ns = pc.sum(steps["duration_ns"]).as_py()
    if not whole_ns:
        return Kinds()
    groups = _read_groups(rows, "device_" if pc.any(pc.greater(rows["device_total_ns"], 0)).as_py() else "")
    images_ns = sum(each.total_ns for each in groups if each.name in _CONVOLUTIONS and len(_first(each)) > 3)
    pointwise = [each for each in groups if each.type in _POINTWISE and each.phase == "backward"]
    found = Kinds(
        convolutions_frac=images_ns / whole_ns,
        has_channels_last=_read_layout(rank) if images_ns and _reads_quickly(rank) else None,
        pointwise_calls=sum(each.count for each in pointwise if each.self_ns <= SMALL_NS * each.count) / steps.num_rows,
        large_frac=sum(each.self_ns for each in groups if each.self_ns >= PARALLEL_NS * each.count) / whole_ns,
        differentiates_twice=any("BackwardBackward" in each.name for each in groups),
        slow_products_frac=_sum_slow_products(rows) / whole_ns,
        kept_frac=_sum_kept(groups) / whole_ns,
        factorises=any(_FACTORISING.fullmatch(each.name) for each in groups),
    )
    return _add_lookups(_add_attention(found, groups, whole_ns), groups, whole_ns)


def _sum_kept(groups: Sequence[_Group]) -> int:
    """Return the time in ns of filling gradients with zeros and adding others to them; 0 if nothing is filled."""
    zeros_ns = sum(each.total_ns for each in groups if each.name in _ZEROING and each.phase == "optimizer")
    sums_ns = sum(each.total_ns for each in groups if each.name == "aten::add_" and each.phase == "backward")
    return zeros_ns + sums_ns if zeros_ns else 0


def _sum_slow_products(rows: pa.Table) -> int:
    """Return the time in ns of large products in float32 that run on processors at a low rate."""
    flops, self_ns = pc.cast(rows["flops"], pa.float64()), rows["self_ns"]
    is_product = pc.and_(
        pc.is_in(rows["name"].cast(pa.string()), pa.array(_MATRICES)), pc.equal(rows["device_self_ns"], 0)
    )
    is_float = pc.match_substring_regex(rows["input_dtypes"].cast(pa.string()), '"float"')
    is_large = pc.greater_equal(flops, pc.multiply(rows["count"], float(LARGE_FLOPS)))
    is_slow = pc.less(flops, pc.multiply(self_ns, SLOW_FLOPS_PER_NS))
    chosen = pc.and_(pc.and_(is_product, is_float), pc.and_(is_large, is_slow))
    return pc.sum(self_ns.filter(chosen)).as_py() or 0


def _read_groups(rows: pa.Table, side: str) -> list[_Group]:
    sums = rows.group_by(_KEYS).aggregate([(name, "sum") for name in _SUMMED]).to_pylist()
    return [
        _Group(
            row["name"],
            row["type"],
            row["phase"],
            _read_shapes(row["input_shapes"]),
            row["count_sum"],
            row[f"{side}total_ns_sum"],
            row[f"{side}self_ns_sum"],
        )
        for row in sums
        if row["count_sum"]
    ]


def _read_shapes(text: str | None) -> tuple[Shape, ...]:
    try:
        return tuple(tuple(int(size) for size in shape) for shape in json.loads(text or "[]"))
    except (ValueError, TypeError, OverflowError):
        return ()


def _first(group: _Group) -> Shape:
    return group.shapes[0] if group.shapes else ()


def _reads_quickly(rank: RankRun) -> bool:
    """Return whether the slices (trace events) can be read quickly: they are on this machine, and few enough."""
    return not stored_files.LENDERS and count_slices(rank) <= AT_ONCE_SLICES


def _read_layout(rank: RankRun) -> bool | None:
    """Return whether convolutions spend most time on inputs with channels last; None if no input shows its layout."""
    where = (pc.field("category") == "operator") & (pc.field("name") == "aten::convolution")
    votes = {True: 0, False: 0}
    for row in read_rows(rank, "slices", ("args", "duration_ns"), where).slice(0, _MOST_READ).to_pylist():
        for is_last in _find_layouts(row["args"]):
            votes[is_last] += row["duration_ns"]
    return votes[True] >= votes[False] if any(votes.values()) else None


def _find_layouts(args: str | None) -> Iterable[bool]:
    """Return whether channels come last: first for the image, then for the weights. A tensor for which both layouts are
    equal is left out.
    """
    try:
        found = json.loads(args or "{}")
        pairs = list(zip(found["Input Dims"][:2], found["Input Strides"][:2], strict=True))
        return [
            strides[1] == 1 for sizes, strides in pairs if len(sizes) > 3 and sizes[1] > 1 and math.prod(sizes[2:]) > 1
        ]
    except (ValueError, TypeError, LookupError):
        return ()


def _flatten(shape: Sequence[int]) -> Shape:
    return (math.prod(shape[:-2]), *shape[-2:])


def _add_attention(found: Kinds, groups: Sequence[_Group], whole_ns: int) -> Kinds:
    asked = {_flatten(_first(each)) for each in groups if each.name in _SOFTMAX and len(_first(each)) > 2}
    products = [pair for each in groups if each.name in _PRODUCTS and (pair := _find_factors(each))]
    made, taken = {_multiply(*pair) for pair in products}, {left for left, _ in products}
    scores = {shape for shape in asked & made & taken if min(shape[1:]) > 1}
    turned = {(first, last, middle) for first, middle, last in scores}
    of_scores = [each for each in groups if _touches(each, scores | turned)]
    return replace(
        found,
        scores_frac=sum(each.self_ns for each in of_scores) / whole_ns,
        is_fallback=bool(scores) and any(each.name == _FALLBACK for each in groups),
        drops_scores=any(each.name in _DROPOUT for each in of_scores),
    )


def _find_factors(group: _Group) -> tuple[Shape, ...]:
    found = tuple(shape for shape in group.shapes if len(shape) == 3)[-2:]  # a sum in front of them comes first
    return found if len(found) == 2 else ()


def _multiply(left: Shape, right: Shape) -> Shape:
    return (*left[:2], right[2])


def _touches(group: _Group, scores: set[Shape]) -> bool:
    factors = _find_factors(group) if group.name in _PRODUCTS else ()
    read = {_flatten(shape) for shape in group.shapes if len(shape) > 2}
    return bool(scores & read) or (bool(factors) and _multiply(*factors) in scores)


def _add_lookups(found: Kinds, groups: Sequence[_Group], whole_ns: int) -> Kinds:
    """Return `found` with the lookups in embeddings that have dense gradients. `whole_ns` is the time of all operators.

    A table that is also the weight of a layer is left out, because it needs its whole gradient. Each lookup makes a
    gradient of all rows. Tables of the same shape cannot be told apart, but lookups can.
    """
    dense_ns = sum(each.total_ns for each in groups if _DENSE.fullmatch(each.name))
    weights = {shape for each in groups if each.name in _LAYERS for shape in each.shapes}
    lookups = [
        each for each in groups if each.name in _LOOKUPS and len(_first(each)) == 2 and _first(each)[0] * each.count
    ]
    lookups = [each for each in lookups if not weights & {_first(each), _first(each)[::-1]}]
    if not dense_ns or not lookups:
        return found
    return replace(
        found,
        lookups_frac=dense_ns / whole_ns,
        rows_frac=sum(min(math.prod(each.shapes[1]), _first(each)[0]) * each.count for each in lookups)
        / sum(_first(each)[0] * each.count for each in lookups),
        table_parameters=sum(map(math.prod, {_first(each) for each in lookups})),
    )
