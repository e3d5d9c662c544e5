"""Replay the detailed window of a rank: its check, what changes would gain, and what was seen."""

from __future__ import annotations

from collections.abc import Callable

from collector.format.run import RankRun
from profiler_server.analysis.replay.building import build_graph
from profiler_server.analysis.replay.changes import CHANGES
from profiler_server.analysis.replay.graph import measure_replay
from profiler_server.analysis.replay.sightings.buckets import find_larger_buckets
from profiler_server.analysis.replay.sightings.copies import (
    find_built_on_cpu,
    find_cast_before_copy,
    find_large_d2h,
    find_small_copies,
)
from profiler_server.analysis.replay.sightings.fusing import find_attention_by_hand, find_unfused_pointwise
from profiler_server.analysis.replay.sightings.gradients import find_checkpointing, find_recorded_gradients
from profiler_server.analysis.replay.sightings.loops import find_per_parameter_loops, find_update_loops
from profiler_server.analysis.replay.sightings.shapes import (
    find_convolutions,
    find_layout_copies,
    find_misaligned_shapes,
)
from profiler_server.analysis.replay.sightings.waits import (
    find_allocator_calls,
    find_emptied_cache,
    find_explicit_synchronize,
    find_sync_points,
)
from profiler_server.analysis.replay.trial import Trial
from profiler_server.analysis.replay.window import read_window
from profiler_server.derive.derived import derived
from profiler_server.facts.machine import Replayed, Sighting

SIGHTINGS: dict[str, Callable[[Trial], Sighting | None]] = {
    "sync_points": find_sync_points,
    "explicit_synchronize": find_explicit_synchronize,
    "allocator_calls": find_allocator_calls,
    "emptied_cache": find_emptied_cache,
    "small_copies": find_small_copies,
    "large_d2h": find_large_d2h,
    "built_on_cpu": find_built_on_cpu,
    "cast_before_copy": find_cast_before_copy,
    "per_parameter_loops": find_per_parameter_loops,
    "update_loops": find_update_loops,
    "misaligned_shapes": find_misaligned_shapes,
    "layout_copies": find_layout_copies,
    "convolutions": find_convolutions,
    "unfused_pointwise": find_unfused_pointwise,
    "attention_by_hand": find_attention_by_hand,
    "recorded_gradients": find_recorded_gradients,
    "checkpointing": find_checkpointing,
    "larger_buckets": find_larger_buckets,
}


@derived(file="replay")
def replay_rank(rank: RankRun) -> Replayed | None:
    """Return the replay of the last detailed window of a rank; None without a window, or where no host call is linked to
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
        left_out=window.left_out,
        nodes=len(graph),
        measured_ns=graph.measured_ns,
        replayed_ns=trial.base_ns,
        gains={name: gain for name, gain in gains.items() if gain is not None},
        seen={name: sighting for name, sighting in seen.items() if sighting is not None},
    )
