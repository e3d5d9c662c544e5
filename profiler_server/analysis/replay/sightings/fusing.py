"""Small kernels that one larger kernel could take the place of: chains of elementwise work, and attention by hand."""

from __future__ import annotations

import re

import numpy as np

from collector.format.intervals import Ints
from profiler_server.analysis.replay.graph import Changes
from profiler_server.analysis.replay.trial import Change, Trial
from profiler_server.analysis.replay.window import KERNEL
from profiler_server.diagnosis.limits.replay import LEAST_CHAIN, LEAST_KEYS, MOST_BETWEEN
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
_IN_ATTENTION = re.compile(r"scaled_dot_product|flash_attn|flash_attention|mem_efficient|cudnn_attention|fmha")


def find_unfused_pointwise(trial: Trial) -> Sighting | None:
    """Chains of elementwise kernels on a stream, outside of the update, in a model that is not compiled."""
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
        edges = np.flatnonzero(np.diff(np.concatenate([[0], alike[mine].astype(np.int8), [0]])))
        for begin, end in zip(edges[::2], edges[1::2], strict=True):
            chained[mine[begin:end]] = end - begin >= LEAST_CHAIN
    if not chained.any():
        return None
    found, callers = nodes[chained], np.unique(trial.caller[rows[chained]])
    host = trial.host_of(callers[callers >= 0])

    def take(device_factor: float, host_factor: float) -> Change:
        def change(changes: Changes) -> None:
            changes.device[found] = device_factor
            changes.joined[found] = True
            changes.host[host] = host_factor

        return change

    gain = trial.try_change(take(0.8, 0.9), take(0.55, 0.6), take(0.35, 0.3))
    lengths = trial.lengths(rows[chained])
    share = float(lengths.sum()) / max(trial.kernels_ns, 1.0)
    names = trial.rank_names(callers[callers >= 0], np.ones(int((callers >= 0).sum())))
    return trial.sight(len(found), float(lengths.sum()), names, gain, share=share)


def find_attention_by_hand(trial: Trial) -> Sighting | None:
    """A softmax between two batched products, made of single operators."""
    window = trial.window
    found: list[Ints] = []
    for track in window.threads:
        calls = trial.list_calls(track)
        found += _find_heads(trial, calls)
    if not found:
        return None
    between = np.concatenate(found)
    back = np.concatenate([np.flatnonzero(window.match(_SOFTMAX_BACK))])
    work, backwards = trial.find_work(between), trial.find_work(np.unique(trial.top[back]))
    nodes, host = trial.nodes(np.concatenate([work, backwards])), trial.host_of(between)

    def take(device_factor: float, host_factor: float) -> Change:
        def change(changes: Changes) -> None:
            changes.device[nodes] = device_factor
            changes.host[host] = host_factor

        return change

    gain = trial.try_change(take(0.6, 0.7), take(0.25, 0.4), take(0.05, 0.1))
    spent = float(trial.lengths(np.concatenate([work, backwards])).sum())
    share = spent / max(trial.kernels_ns, 1.0)
    return trial.sight(len(found), spent, trial.rank_names(between, np.ones(len(between))), gain, share=share)


def _find_heads(trial: Trial, calls: Ints) -> list[Ints]:
    """Return the operators between the two products of each attention of a thread."""
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
    """Say whether a softmax is over the scores of many keys; where the trace has no shapes it may be."""
    dims = trial.read_args(np.array([row]))[0].get("Input Dims")
    first = dims[0] if isinstance(dims, list) and dims else None
    if not isinstance(first, list) or not first:
        return True
    return len(first) in (3, 4) and isinstance(first[-1], int) and first[-1] >= LEAST_KEYS
