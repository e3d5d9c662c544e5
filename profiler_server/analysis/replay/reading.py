"""Replays of a window with the changes that rules use for predictions. Each change has a poor, a usual and the best
version.

A function for a change returns None if the window has no work for the change, or if the replay of the window is not
valid."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from collector.format.run import RankRun
from profiler_server.analysis.operators.kernels import FULL_PRECISION
from profiler_server.analysis.replay.building import build_graph
from profiler_server.analysis.replay.graph import measure_replay
from profiler_server.analysis.replay.sightings import buckets, operators, transfers
from profiler_server.analysis.replay.trial import TO_DEVICE, Trial, scale
from profiler_server.analysis.replay.window import CALL, KERNEL, OPERATOR, read_window
from profiler_server.derive.derived import derived
from profiler_server.diagnosis.limits.replay import COPY_CALL_NS, SHORT_PYTHON_NS
from profiler_server.facts.machine import Gain, Replayed, Sighting

_LOADING = re.compile(r"DataLoader|dataloader")


def shorten_products(trial: Trial) -> Gain | None:
    """Return the savings if matrix products of full precision run on tensor cores; None without such products.

    These products then take half of their time; a quarter at best, three quarters in the poor version.
    """
    window = trial.window
    rows = np.flatnonzero((window.kind == KERNEL) & window.match(FULL_PRECISION))
    nodes = trial.nodes(rows)
    return trial.try_change(*(scale(nodes, factor) for factor in (0.75, 0.5, 0.25))) if len(nodes) else None


def join_update(trial: Trial) -> Gain | None:
    """Return the savings if one fused update replaces a loop over tensors; None without device work in an update.

    The fused update usually takes a tenth of the loop's host time, and somewhat less device time.
    """
    window = trial.window
    host = trial.host_between(trial.updates)
    launched = np.where(window.launch >= 0, window.launch, 0)
    work = np.flatnonzero(window.on_device & (window.launch >= 0))
    nodes = trial.nodes(work[trial.is_updating(launched[work])])
    return (
        trial.try_change(
            *(
                scale(nodes, device_factor, host, host_factor, joined=nodes)
                for host_factor, device_factor in ((0.3, 1.0), (0.1, 0.8), (0.03, 0.4))
            )
        )
        if len(nodes)
        else None
    )


def batch_launches(trial: Trial) -> Gain | None:
    """Return the savings if compilation or CUDA graphs launch many kernels at once; None if the replay is not valid.

    The host time in operators, in launches and in the Python code between them then shrinks to a fraction.
    """
    graph, window = trial.graph, trial.window
    owner = graph.host.owner
    kind = np.where(owner >= 0, window.kind[owner], -1)
    dispatch = (kind == OPERATOR) | (kind == CALL)
    loading = (owner >= 0) & window.match(_LOADING)[owner]
    python = ~dispatch & ~loading & (graph.host.length_ns < SHORT_PYTHON_NS)
    none = np.empty(0, np.int64)
    return trial.try_change(
        *(
            scale(none, host=dispatch | python, host_factor=np.where(dispatch, dispatched, left)[dispatch | python])
            for dispatched, left in ((0.6, 0.8), (0.25, 0.4), (0.05, 0.1))
        )
    )


def overlap_copies(trial: Trial) -> Gain | None:
    """Return the savings if copies to the device come from pinned memory and do not block; None without copies.

    At best the copies run beside the computation of the previous step.
    """
    copies = trial.find_copies(TO_DEVICE)
    if not len(copies):
        return None
    nodes = trial.nodes(copies)
    calls = trial.window.launch[copies]
    calls = calls[calls >= 0]
    waits = trial.wait_nodes(calls)
    host = trial.graph.host
    short = np.isin(host.owner, calls) & (host.length_ns > COPY_CALL_NS)
    host_factor = np.minimum(COPY_CALL_NS / host.length_ns[short], 1.0)
    in_order, beside = (
        scale(nodes, 1.0, short, host_factor, unwaited=waits, aside=moved) for moved in (nodes[:0], nodes)
    )
    return trial.try_change(in_order, beside, beside)


CHANGES: dict[str, Callable[[Trial], Gain | None]] = {
    "precision": shorten_products,
    "update": join_update,
    "launches": batch_launches,
    "copies": overlap_copies,
}


SIGHTINGS: dict[str, Callable[[Trial], Sighting | None]] = {
    "sync_points": transfers.find_sync_points,
    "explicit_synchronize": transfers.find_explicit_synchronize,
    "allocator_calls": transfers.find_allocator_calls,
    "emptied_cache": transfers.find_emptied_cache,
    "small_copies": transfers.find_small_copies,
    "large_d2h": transfers.find_large_d2h,
    "built_on_cpu": transfers.find_built_on_cpu,
    "cast_before_copy": transfers.find_cast_before_copy,
    "per_parameter_loops": operators.find_per_parameter_loops,
    "update_loops": operators.find_update_loops,
    "misaligned_shapes": operators.find_misaligned_shapes,
    "layout_copies": operators.find_layout_copies,
    "unfused_pointwise": operators.find_unfused_pointwise,
    "attention_by_hand": operators.find_attention_by_hand,
    "recorded_gradients": operators.find_recorded_gradients,
    "checkpointing": operators.find_checkpointing,
    "larger_buckets": buckets.find_larger_buckets,
}


@derived(file="replay")
def replay_rank(rank: RankRun) -> Replayed | None:
    """Return the replay of the last detailed window of a rank. None without a window, or if no host call is linked to
    device work.

    Raises TableBrokenError or NewerSchemaError.
    """
    window = read_window(rank)
    graph = build_graph(window) if window is not None else None
    if window is None or graph is None:
        return None
    trial = Trial(graph, measure_replay(graph))
    gains = {name: change(trial) for name, change in CHANGES.items()}
    seen = {name: find(trial) for name, find in SIGHTINGS.items()}
    return Replayed(
        steps=window.steps,
        measured_ns=graph.measured_ns,
        replayed_ns=trial.base_ns,
        gains={name: gain for name, gain in gains.items() if gain is not None},
        seen={name: sighting for name, sighting in seen.items() if sighting is not None},
    )
