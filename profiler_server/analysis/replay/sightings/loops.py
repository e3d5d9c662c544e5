"""Loops over tensors in Python, outside of the update: one small operator after the other."""

from __future__ import annotations

import re

import numpy as np

from collector.format.intervals import Ints, Mask, unite
from profiler_server.analysis.replay.graph import Changes
from profiler_server.analysis.replay.trial import UPDATE, Change, Trial
from profiler_server.diagnosis.limits.replay import LEAST_IN_A_ROW, MOST_KINDS, TINY_FACTOR, TINY_NS
from profiler_server.facts.machine import Sighting

_LISTED = re.compile(
    r"^aten::(mul_|add_|sub_|div_|lerp_|copy_|zero_|norm|linalg_vector_norm|clamp_|clamp|addcmul_|addcdiv_|sqrt|mul|add|pow|sum)$"
)
_SINGLE = re.compile(r"^aten::(mul_?|add_?|sub_?|div_?|lerp_|addcmul_?|addcdiv_?|sqrt_?)$")
_TOGETHER = re.compile(r"^aten::_(foreach|fused|amp)_")
_NEUTRAL = re.compile(r"^aten::(detach_?|view|reshape|to|expand|empty|empty_like|resolve_conj|resolve_neg)$")


def find_per_parameter_loops(trial: Trial) -> Sighting | None:
    """Operators over one parameter after the other: norms for clipping, moving averages of weights."""
    window = trial.window
    calls = trial.list_calls(window.threads[0])
    calls = calls[~window.match(_NEUTRAL)[calls]]
    listed = window.match(_LISTED)[calls] & ~trial.is_updating(calls)
    loops = [run for run in _find_runs(calls, listed) if len(np.unique(window.name[run])) <= MOST_KINDS]
    if not loops:
        return None
    found = np.concatenate(loops)
    starts = np.array([window.start_ns[run[0]] for run in loops], np.int64)
    spans = unite(starts, np.array([window.end_ns[run[-1]] for run in loops], np.int64))
    host, nodes = trial.host_between(spans), trial.nodes(trial.find_work(found))
    tiny = trial.graph.length_ns[nodes] < TINY_NS

    def take(host_factor: float, device_factor: float) -> Change:
        def change(changes: Changes) -> None:
            changes.host[host] = host_factor
            changes.device[nodes] = np.where(tiny, min(device_factor, TINY_FACTOR), device_factor)
            changes.joined[nodes] = True

        return change

    gain = trial.try_change(take(0.4, 1.0), take(0.1, 0.9), take(0.05, 0.5))
    return trial.sight(len(found), float(spans.length_ns), trial.rank_names(found, np.ones(len(found))), gain)


def _find_runs(calls: Ints, wanted: Mask) -> list[Ints]:
    """Return the runs of wanted operators that are long enough."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], wanted.astype(np.int8), [0]])))
    return [calls[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True) if b - a >= LEAST_IN_A_ROW]


def find_update_loops(trial: Trial) -> Sighting | None:
    """Optimizer steps that run operators over one parameter after the other; `examples` are their names."""
    window = trial.window
    calls = trial.list_calls(window.threads[0])
    calls = calls[trial.is_updating(calls)]
    single = calls[window.match(_SINGLE)[calls]]
    if window.match(_TOGETHER)[calls].any() or len(single) < LEAST_IN_A_ROW * window.steps:
        return None
    marks = np.flatnonzero(window.match(UPDATE))
    spent = float(trial.updates.length_ns)
    return trial.sight(len(single), spent, trial.rank_names(marks, trial.lengths(marks)), None)
