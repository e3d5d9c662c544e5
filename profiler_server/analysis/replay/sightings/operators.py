"""Operators and kernels that could be fewer or different: pointwise chains, attention, loops over tensors, shapes and
layouts, unused gradients.
"""

from __future__ import annotations

import re

import numpy as np

from collector.format.intervals import Ints, Mask, unite
from profiler_server.analysis.replay.trial import UPDATE, Trial, scale
from profiler_server.analysis.replay.window import KERNEL, OPERATOR
from profiler_server.diagnosis.limits.replay import (
    ALIGNED,
    LEAST_CHAIN,
    LEAST_IN_A_ROW,
    LEAST_KEYS,
    LEAST_RECORDED,
    MOST_BETWEEN,
    MOST_KINDS,
    TINY_FACTOR,
    TINY_NS,
)
from profiler_server.facts.machine import Sighting

_POINTWISE = re.compile(r"elementwise_kernel|elementwise_with_")
_FUSED = re.compile(r"^triton_|_fused_")
_SOFTMAX = re.compile(r"^aten::_?(safe_)?softmax$")
_SOFTMAX_BACK = re.compile(r"^aten::_softmax_backward_data$")
_PRODUCT = re.compile(r"^aten::(bmm|baddbmm|matmul|einsum)$")
_BETWEEN = re.compile(
    r"^aten::(mul|div|add|sub|masked_fill|where|softmax|_softmax|dropout|to|float|type_as|clone|contiguous|native_dropout|"
    r"mul_|div_|add_|masked_fill_|expand|view|reshape|transpose|permute|unsqueeze|slice|max|maximum|_to_copy|copy_|eq|lt)$"
)


def find_unfused_pointwise(trial: Trial) -> Sighting | None:
    """Return the sighting of chained elementwise kernels outside of updates; None without, or in a compiled model."""
    window, graph = trial.window, trial.graph
    nodes = trial.nodes(np.flatnonzero(window.kind == KERNEL))
    rows = graph.row[nodes]
    if not len(rows) or window.match(_FUSED)[rows].any():
        return None
    launch = np.where(window.launch[rows] >= 0, window.launch[rows], 0)
    alike = window.match(_POINTWISE)[rows] & ~trial.is_updating(launch)
    chained = np.zeros(len(rows), bool)
    for track in np.unique(window.track[rows]):
        mine = np.flatnonzero(window.track[rows] == track)
        mine = mine[np.argsort(nodes[mine])]
        for run in _find_runs(mine, alike[mine], LEAST_CHAIN):
            chained[run] = True
    if not chained.any():
        return None
    found, callers = nodes[chained], np.unique(trial.caller[rows[chained]])
    host = trial.host_of(callers[callers >= 0])
    gain = trial.try_change(
        *(
            scale(found, factor, host, host_factor, joined=found)
            for factor, host_factor in ((0.8, 0.9), (0.55, 0.6), (0.35, 0.3))
        )
    )
    callers = callers[callers >= 0]
    return trial.sight_kernels(len(found), rows[chained], trial.rank_names(callers), gain)


def find_attention_by_hand(trial: Trial) -> Sighting | None:
    """Return the sighting of attention made of single operators, a softmax between two products; None without it."""
    window = trial.window
    found: list[Ints] = []
    for track in window.threads:
        calls = trial.list_calls(track)
        found += _find_heads(trial, calls)
    if not found:
        return None
    between = np.concatenate(found)
    back = np.flatnonzero(window.match(_SOFTMAX_BACK))
    work = np.concatenate([trial.find_work(between), trial.find_work(np.unique(trial.top[back]))])
    nodes, host = trial.nodes(work), trial.host_of(between)
    gain = trial.try_change(
        *(scale(nodes, factor, host, host_factor) for factor, host_factor in ((0.6, 0.7), (0.25, 0.4), (0.05, 0.1)))
    )
    return trial.sight_kernels(len(found), work, trial.rank_names(between), gain)


def _find_heads(trial: Trial, calls: Ints) -> list[Ints]:
    window = trial.window
    product, between = window.match(_PRODUCT)[calls], window.match(_BETWEEN)[calls]
    found: list[Ints] = []
    for at in np.flatnonzero(window.match(_SOFTMAX)[calls]).tolist():
        first = at
        while first > 0 and between[first - 1] and at - first < MOST_BETWEEN:
            first -= 1
        last = at
        while last + 1 < len(calls) and between[last + 1] and last - at < MOST_BETWEEN:
            last += 1
        if first and last + 1 < len(calls) and product[first - 1] and product[last + 1] and _is_long(trial, calls[at]):
            found.append(calls[first : last + 1])
    return found


def _is_long(trial: Trial, row: int) -> bool:
    """Return whether a softmax is over many keys (attended positions); true if the trace has no shapes."""
    dims = trial.read_args(np.array([row]))[0].get("Input Dims")
    first = dims[0] if isinstance(dims, list) and dims else None
    if not isinstance(first, list) or not first:
        return True
    return len(first) in (3, 4) and isinstance(first[-1], int) and first[-1] >= LEAST_KEYS


_LISTED = re.compile(
    r"^aten::(mul_|add_|sub_|div_|lerp_|copy_|zero_|norm|linalg_vector_norm|clamp_|clamp|addcmul_|addcdiv_|sqrt|mul|add|pow|sum)$"
)
_SINGLE = re.compile(r"^aten::(mul_?|add_?|sub_?|div_?|lerp_|addcmul_?|addcdiv_?|sqrt_?)$")
_TOGETHER = re.compile(r"^aten::_(foreach|fused|amp)_")
_NEUTRAL = re.compile(r"^aten::(detach_?|view|reshape|to|expand|empty|empty_like|resolve_conj|resolve_neg)$")


def find_per_parameter_loops(trial: Trial) -> Sighting | None:
    """Return the sighting of loops of operators over parameters, such as norms for clipping; None without loops."""
    window = trial.window
    calls = trial.list_calls(window.threads[0])
    calls = calls[~window.match(_NEUTRAL)[calls]]
    listed = window.match(_LISTED)[calls] & ~trial.is_updating(calls)
    loops = _find_runs(calls, listed, LEAST_IN_A_ROW)
    loops = [run for run in loops if len(np.unique(window.name[run])) <= MOST_KINDS]
    if not loops:
        return None
    found = np.concatenate(loops)
    starts = np.array([window.start_ns[run[0]] for run in loops], np.int64)
    spans = unite(starts, np.array([window.end_ns[run[-1]] for run in loops], np.int64))
    host, nodes = trial.host_between(spans), trial.nodes(trial.find_work(found))
    tiny = trial.graph.length_ns[nodes] < TINY_NS
    gain = trial.try_change(
        *(
            scale(nodes, np.where(tiny, min(factor, TINY_FACTOR), factor), host, host_factor, joined=nodes)
            for host_factor, factor in ((0.4, 1.0), (0.1, 0.9), (0.05, 0.5))
        )
    )
    return trial.sight(len(found), float(spans.length_ns), trial.rank_names(found), gain)


def _find_runs(rows: Ints, wanted: Mask, least: int) -> list[Ints]:
    """Return each sequence of consecutive wanted `rows` that has at least `least` rows."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], wanted.astype(np.int8), [0]])))
    return [rows[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True) if b - a >= least]


def find_update_loops(trial: Trial) -> Sighting | None:
    """Return the sighting of optimizer steps that loop over single parameters; None without them. Examples are names
    such as `Optimizer.step#Adam.step`."""
    window = trial.window
    calls = trial.list_calls(window.threads[0])
    calls = calls[trial.is_updating(calls)]
    single = calls[window.match(_SINGLE)[calls]]
    if window.match(_TOGETHER)[calls].any() or len(single) < LEAST_IN_A_ROW * window.steps:
        return None
    marks = np.flatnonzero(window.match(UPDATE))
    spent = float(trial.updates.length_ns)
    return trial.sight(len(single), spent, trial.rank_names(marks, trial.lengths(marks)), None)


_MATRICES = re.compile(r"^aten::(mm|addmm|bmm|baddbmm)$")
_KERNEL = re.compile(r"gemm|Cijk|cutlass|nvjet", re.IGNORECASE)
_HALF = ("c10::Half", "c10::BFloat16")
_LAYOUT = re.compile(r"nchwToNhwc|nhwcToNchw|nchw2nhwc|nhwc2nchw|nchw_to_nhwc|nhwc_to_nchw", re.IGNORECASE)


def find_misaligned_shapes(trial: Trial) -> Sighting | None:
    """Return the sighting of 16-bit products whose inner or last dimension is no multiple of 8; None without them."""
    window = trial.window
    rows = np.flatnonzero(window.match(_MATRICES))
    sizes = [_read_product(entry) for entry in trial.read_args(rows)]
    odd = np.array([size is not None and any(side % ALIGNED for side in size) for size in sizes], bool)
    owners = rows[odd]
    if not len(owners):
        return None
    is_owned = (window.launch >= 0) & np.isin(window.parent[window.launch], owners)
    kernels = np.flatnonzero((window.kind == KERNEL) & is_owned & window.match(_KERNEL))
    nodes = trial.nodes(kernels)
    if not len(nodes):
        return None
    gain = trial.try_change(*(scale(nodes, factor) for factor in (0.9, 0.75, 0.5)))
    return trial.sight_kernels(len(kernels), kernels, _name_sizes(trial, owners), gain)


def _read_product(args: dict[str, object]) -> tuple[int, int] | None:
    """Return the inner and the last dimension of a product of two 16-bit matrices; None for any other product."""
    dims, types = args.get("Input Dims"), args.get("Input type")
    if not isinstance(dims, list) or not isinstance(types, list):
        return None
    matrices = [
        size
        for size, kind in zip(dims, types, strict=False)
        if kind in _HALF and isinstance(size, list) and len(size) in (2, 3) and all(isinstance(n, int) for n in size)
    ]
    if len(matrices) < 2:
        return None
    one, other = matrices[-2:]
    return (int(one[-1]), int(other[-1])) if one[-1] == other[-2] else None


def _name_sizes(trial: Trial, owners: np.ndarray) -> list[str]:
    counts: dict[str, int] = {}
    for entry in trial.read_args(owners):
        size = _read_product(entry)
        if size is not None:
            name = f"K = {size[0]:,}, N = {size[1]:,}"
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: -counts[name])


def find_layout_copies(trial: Trial) -> Sighting | None:
    """Return the sighting of kernels that only convert images from one memory layout to another; None without them."""
    window = trial.window
    kernels = np.flatnonzero((window.kind == KERNEL) & window.match(_LAYOUT))
    if not len(kernels):
        return None
    nodes = trial.nodes(kernels)
    gain = trial.try_change(*(scale(nodes, factor) for factor in (0.4, 0.1, 0.0)))
    return trial.sight_kernels(len(kernels), kernels, trial.rank_names(kernels, trial.lengths(kernels)), gain)


_BACKWARD = re.compile(r"Backward|autograd::engine")
_CHECKPOINT = re.compile(r"^(CheckpointFunctionBackward|.*CheckpointFunctionBackward)$")


def find_recorded_gradients(trial: Trial) -> Sighting | None:
    """Return the sighting of operators that record gradients in a window without a backward; None without them."""
    window = trial.window
    operators = window.kind == OPERATOR
    if window.match(_BACKWARD)[operators].any():
        return None
    outermost = operators & (trial.top == np.arange(len(window.ids)))
    recorded = np.flatnonzero(outermost & (window.sequence >= 0))
    if len(recorded) < LEAST_RECORDED:
        return None
    share = len(recorded) / max(int(outermost.sum()), 1)
    names = trial.rank_names(recorded)
    return trial.sight(len(recorded), float(trial.lengths(recorded).sum()), names, None, share=share)


def find_checkpointing(trial: Trial) -> Sighting | None:
    """Return the sighting of forwards that the backward runs again, as no results were kept; None without them."""
    window = trial.window
    spans = np.flatnonzero(window.match(_CHECKPOINT) & (window.kind == OPERATOR))
    if not len(spans):
        return None
    inside = np.zeros(len(window.ids), bool)
    for row in spans.tolist():  # the first half of the span is the forward, and the rest its backward
        low, high = np.searchsorted(window.start_ns, [window.start_ns[row], window.end_ns[row]])
        inside[low:high] |= (window.track[low:high] == window.track[row]) & ~window.match(_BACKWARD)[low:high]
    launch = window.launch
    again = np.flatnonzero(window.on_device & (launch >= 0) & inside[launch])
    nodes = trial.nodes(again)
    gain = trial.try_change(*(scale(nodes, factor) for factor in (0.7, 0.5, 0.4)))
    return trial.sight(len(spans), float(trial.lengths(spans).sum()), trial.rank_names(spans), gain)
