"""Calls at which the host waits for the device, and what the device idles after them."""

from __future__ import annotations

import re

import numpy as np

from collector.format.intervals import Floats, Ints, unite
from profiler_server.analysis.replay.graph import Changes
from profiler_server.analysis.replay.points import SYNC
from profiler_server.analysis.replay.trial import TO_DEVICE, Trial
from profiler_server.analysis.replay.window import OPERATOR
from profiler_server.diagnosis.limits.replay import ALLOCATING_STEPS, KEPT_GAIN
from profiler_server.facts.machine import Gain, Sighting

_EXPLICIT = re.compile(r"^(cuda|hip)(Device|Stream|Event)Synchronize")
_WAITING = re.compile(rf"{SYNC.pattern}|Memcpy")
_FREE = re.compile(r"^(cuda|hip)Free$")
_ALLOCATE = re.compile(r"^(cuda|hip)(Malloc|Free|MemCreate|MemMap)$")


def find_sync_points(trial: Trial) -> Sighting | None:
    """Operators that need a value of the device: `.item()`, `.cpu()`, `nonzero`, a tensor in an `if`."""
    waits = _find_waits(trial)
    window, row = trial.window, trial.graph.row
    copied = np.isin(row[waits], window.launch[trial.find_copies(TO_DEVICE)])
    owned = window.kind[trial.top[row[waits]]] == OPERATOR
    return _describe(trial, waits[owned & ~copied & ~window.match(_ALLOCATE)[row[waits]]], least=KEPT_GAIN)


def find_explicit_synchronize(trial: Trial) -> Sighting | None:
    """`torch.cuda.synchronize()` and its like, outside of every operator."""
    waits = _find_waits(trial)
    window, row = trial.window, trial.graph.row
    alone = window.kind[trial.top[row[waits]]] != OPERATOR
    return _describe(trial, waits[alone & window.match(_EXPLICIT)[row[waits]]], least=0.8)


def find_allocator_calls(trial: Trial) -> Sighting | None:
    """Memory that operators ask the driver for, or give back to it, while steps run."""
    return _describe_allocator(trial, within=True)


def find_emptied_cache(trial: Trial) -> Sighting | None:
    """Memory that is given back to the driver outside of operators: `torch.cuda.empty_cache()`."""
    return _describe_allocator(trial, within=False)


def _find_waits(trial: Trial) -> Ints:
    """Return the calls that did wait, after which more work was launched."""
    graph = trial.graph
    rows = np.flatnonzero(trial.window.match(_WAITING))
    waits = [
        node
        for node in trial.wait_nodes(rows).tolist()
        if max(graph.end_ns[source] for source, _ in graph.awaits[node]) > graph.begin_ns[node]
    ]
    launched = graph.begin_ns[graph.launch[graph.launch >= 0]]
    last = float(launched.max()) if len(launched) else 0.0
    return np.array(sorted(node for node in waits if graph.end_ns[node] <= last), np.int64)


def _describe(trial: Trial, waits: Ints, least: float) -> Sighting | None:
    if not len(waits):
        return None
    graph = trial.graph
    rows = graph.row[waits]
    spent = graph.end_ns[waits] - graph.begin_ns[waits]
    idle_ns = _sum_idle_after(trial, waits)

    def change(changes: Changes) -> None:
        changes.unwaited[waits] = True

    found = trial.try_change(change, change, change)
    most = idle_ns / trial.base_ns
    gain = None if found is None else Gain(*(part * min(found.frac, most) for part in (least, 1.0, 1.0)))
    return trial.sight(
        len(waits), float(spent.sum()), _name_waits(trial, rows, spent), gain, idle_ns=idle_ns / trial.window.steps
    )


def _name_waits(trial: Trial, rows: Ints, spent_ns: Floats) -> list[str]:
    """Return the operators that waited, the longest first."""
    sums: dict[str, float] = {}
    for row, time_ns in zip(rows.tolist(), spent_ns.tolist(), strict=True):
        name = trial.name_outermost(row)
        sums[name] = sums.get(name, 0.0) + time_ns
    return sorted(sums, key=lambda name: -sums[name])


def _sum_idle_after(trial: Trial, waits: Ints) -> float:
    """Return how long the device idles after the waits: from the end of what was waited for to the next work."""
    graph = trial.graph
    work = np.flatnonzero(graph.on_device)
    busy = unite(graph.begin_ns[work].astype(np.int64), graph.end_ns[work].astype(np.int64))
    done = np.array([max(graph.end_ns[source] for source, _ in graph.awaits[node]) for node in waits.tolist()])
    at = np.unique(np.searchsorted(busy.ends, done.astype(np.int64), side="left"))
    at = at[at < len(busy.starts) - 1]
    return float((busy.starts[at + 1] - busy.ends[at]).sum())


def _describe_allocator(trial: Trial, within: bool) -> Sighting | None:
    window = trial.window
    calls = np.flatnonzero(window.match(_ALLOCATE if within else _FREE) & np.isin(window.track, window.threads))
    inside = window.kind[trial.top[calls]] == OPERATOR
    calls = calls[inside if within else ~inside]
    if window.steps < ALLOCATING_STEPS or trial.count_steps_with(calls) <= window.steps // 2:
        return None
    host = np.isin(trial.graph.host.owner, calls)
    waits = trial.wait_nodes(calls)

    def change(changes: Changes) -> None:
        changes.host[host] = 0.0
        changes.unwaited[waits] = True

    found = trial.try_change(change, change, change)
    gain = None if found is None else Gain(0.7 * found.frac, found.frac, found.frac)
    freed = int(window.match(_FREE)[calls].sum())
    lengths = trial.lengths(calls)
    names = trial.rank_names(calls, lengths)
    return trial.sight(len(calls), float(lengths.sum()), names, gain, freed=freed / window.steps)
