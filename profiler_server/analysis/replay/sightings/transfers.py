"""Copies between host and device that could be fewer or smaller, and calls in which the host waits for the device."""

from __future__ import annotations

import re

import numpy as np

from collector.format.intervals import Floats, Ints, Mask, unite
from profiler_server.analysis.replay.trial import TO_DEVICE, TO_HOST, Trial, scale
from profiler_server.analysis.replay.waiting import SYNC
from profiler_server.analysis.replay.window import OPERATOR
from profiler_server.diagnosis.limits.replay import (
    ALLOCATING_STEPS,
    KEPT_GAIN,
    LARGE_COPY_BYTES,
    LEAST_SMALL_COPIES,
    RIGHT_BEFORE_NS,
    SMALL_COPY_BYTES,
)
from profiler_server.facts.machine import Gain, Sighting

_MADE = re.compile(
    r"^aten::(arange|zeros|ones|full|rand|randn|randint|randperm|eye|linspace|zeros_like|ones_like|full_like|lift_fresh)$"
)
_FILLER = re.compile(r"^aten::(detach_?|lift_fresh|to|view|reshape|unsqueeze)$")
_CAST = re.compile(r"^aten::(to|_to_copy|float|half|div|mul|sub|true_divide)$")
_SIZES = {"unsigned char": 1, "signed char": 1, "bool": 1, "short": 2, "c10::Half": 2, "c10::BFloat16": 2}
_SIZES |= {"int": 4, "float": 4, "long": 8, "long int": 8, "double": 8}
Masks = tuple[Ints, Ints, Mask]


def find_small_copies(trial: Trial) -> Sighting | None:
    """Return the sighting of many small copies to the device, each with its own launch; None with few of them in a
    step."""
    copies = trial.find_copies(TO_DEVICE)
    copies = copies[trial.read_bytes(copies) <= SMALL_COPY_BYTES]
    if len(copies) < LEAST_SMALL_COPIES * trial.window.steps:
        return None
    return _describe_copies(trial, copies, low=0.6)


def find_large_d2h(trial: Trial) -> Sighting | None:
    """Return the sighting of large results that are copied to the host in every step; None without them."""
    copies = trial.find_copies(TO_HOST)
    copies = copies[trial.read_bytes(copies) >= LARGE_COPY_BYTES]
    return _describe_copies(trial, copies, low=0.5) if len(copies) >= trial.window.steps else None


def find_built_on_cpu(trial: Trial) -> Sighting | None:
    """Return the sighting of tensors that the host makes and copies, although the device could make them; None
    without."""
    copies, before = _list_with_previous(trial, trial.find_copies(TO_DEVICE), _FILLER)
    made = (before >= 0) & trial.window.match(_MADE)[before]
    return _describe_copies(trial, copies[made], low=0.5, near=before[made])


def find_cast_before_copy(trial: Trial) -> Sighting | None:
    """Return the sighting of batches that the host casts to a wider type before the copy; None without them."""
    copies, before = _list_with_previous(trial, trial.find_copies(TO_DEVICE), re.compile("(?!)"))
    cast = (before >= 0) & trial.window.match(_CAST)[before]
    copies, before = copies[cast], before[cast]
    narrow = np.array([_measure_element(entry) for entry in trial.read_args(before)], np.float64)
    wide = np.array([_measure_element(entry) for entry in trial.read_args(trial.caller[copies])], np.float64)
    grown = (narrow > 0) & (wide > narrow) & (trial.read_bytes(copies) >= LARGE_COPY_BYTES)
    copies, before, ratio = copies[grown], before[grown], (narrow / np.maximum(wide, 1.0))[grown]
    if not len(copies):
        return None
    nodes, host = trial.nodes(copies), trial.host_of(before)
    gain = trial.try_one(scale(nodes, ratio, host, 0.05), least=0.6)
    spent = float(trial.lengths(before).sum() + trial.lengths(copies).sum())
    return trial.sight(len(copies), spent, trial.rank_names(before, trial.lengths(before)), gain)


def _describe_copies(trial: Trial, copies: Ints, low: float, near: Ints | None = None) -> Sighting | None:
    """Return the sighting of copies that could be omitted, or merged into another copy; None if there are no copies.
    The poor version saves the share `low`. Examples are the names of the rows `near`, by default of the copying
    operators."""
    if not len(copies):
        return None
    callers = np.unique(trial.caller[copies])
    callers = callers[callers >= 0]
    waits = trial.wait_nodes(trial.window.launch[copies])
    waits = np.union1d(waits, _find_waits_in(trial, callers))
    nodes, host = trial.nodes(copies), trial.host_of(callers)
    gain = trial.try_one(scale(nodes, 1.0, host, 0.1, skipped=nodes, unwaited=waits), least=low)
    named = near if near is not None else callers if len(callers) else copies
    sizes = trial.read_bytes(copies)
    total = float(np.nansum(sizes)) / trial.window.steps
    return trial.sight(
        len(copies),
        float(trial.lengths(copies).sum()),
        trial.rank_names(named),
        gain,
        size_bytes=total,
    )


def _find_waits_in(trial: Trial, callers: Ints) -> Ints:
    waits = np.array(sorted(trial.graph.awaits), np.int64)
    return waits[np.isin(trial.top[trial.graph.row[waits]], callers)] if len(waits) else waits


def _list_with_previous(trial: Trial, copies: Ints, filler: re.Pattern[str]) -> tuple[Ints, Ints]:
    """Return the copies that operators launched, and for each the outermost operator directly before it; -1 for none
    nearby.

    Operators that launch no work and match `filler` are skipped.
    """
    window = trial.window
    copies = copies[trial.caller[copies] >= 0]
    before = np.full(len(copies), -1, np.int64)
    skip = window.match(filler)
    launching = np.zeros(len(window.ids), bool)
    launching[trial.caller[window.on_device & (trial.caller >= 0)]] = True
    for track in window.threads:
        calls = trial.list_calls(track)
        calls = calls[~skip[calls] | launching[calls]]
        mine = np.flatnonzero(window.track[trial.caller[copies]] == track)
        at = np.searchsorted(calls, trial.caller[copies[mine]]) - 1
        found = np.where(at >= 0, calls[np.maximum(at, 0)], -1) if len(calls) else np.full(len(mine), -1)
        near = window.start_ns[trial.caller[copies[mine]]] - window.end_ns[found] <= RIGHT_BEFORE_NS
        before[mine] = np.where((found >= 0) & near & ~launching[found], found, -1)
    return copies, before


def _measure_element(args: dict[str, object]) -> float:
    """Return the bytes of one element of the first input, NaN if the trace has no dtype for this input."""
    types = args.get("Input type")
    first = types[0] if isinstance(types, list) and types else None
    return float(_SIZES.get(first, np.nan)) if isinstance(first, str) else np.nan


_EXPLICIT = re.compile(r"^(cuda|hip)(Device|Stream|Event)Synchronize")
_WAITING = re.compile(rf"{SYNC.pattern}|Memcpy")
_FREE = re.compile(r"^(cuda|hip)Free$")
_ALLOCATE = re.compile(r"^(cuda|hip)(Malloc|Free|MemCreate|MemMap)$")


def find_sync_points(trial: Trial) -> Sighting | None:
    """Return the sighting of operators that make the host wait for a value, such as `.item()`; None without them."""
    waits = _find_waits(trial)
    window, row = trial.window, trial.graph.row
    copied = np.isin(row[waits], window.launch[trial.find_copies(TO_DEVICE)])
    owned = window.kind[trial.top[row[waits]]] == OPERATOR
    return _describe(trial, waits[owned & ~copied & ~window.match(_ALLOCATE)[row[waits]]], least=KEPT_GAIN)


def find_explicit_synchronize(trial: Trial) -> Sighting | None:
    """Return the sighting of calls such as `torch.cuda.synchronize()` outside of every operator; None without them."""
    waits = _find_waits(trial)
    window, row = trial.window, trial.graph.row
    alone = window.kind[trial.top[row[waits]]] != OPERATOR
    return _describe(trial, waits[alone & window.match(_EXPLICIT)[row[waits]]], least=0.8)


def find_allocator_calls(trial: Trial) -> Sighting | None:
    """Return the sighting of memory that operators take from the driver or return to it in most steps; None without
    it."""
    return _describe_allocator(trial, within=True)


def find_emptied_cache(trial: Trial) -> Sighting | None:
    """Return the sighting of memory that `torch.cuda.empty_cache()` returns to the driver in most steps; None
    without it."""
    return _describe_allocator(trial, within=False)


def _find_waits(trial: Trial) -> Ints:
    """Return the nodes of the calls that really waited for the device, and after which more work was launched."""
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
    found = trial.try_one(scale(waits[:0], unwaited=waits))
    most = idle_ns / trial.base_ns
    gain = None if found is None else Gain(*(part * min(found.frac, most) for part in (least, 1.0, 1.0)))
    return trial.sight(
        len(waits), float(spent.sum()), _name_waits(trial, rows, spent), gain, idle_ns=idle_ns / trial.window.steps
    )


def _name_waits(trial: Trial, rows: Ints, spent_ns: Floats) -> list[str]:
    sums: dict[str, float] = {}
    for row, time_ns in zip(rows.tolist(), spent_ns.tolist(), strict=True):
        name = trial.name_outermost(row)
        sums[name] = sums.get(name, 0.0) + time_ns
    return sorted(sums, key=lambda name: -sums[name])


def _sum_idle_after(trial: Trial, waits: Ints) -> float:
    """Return the device's idle time in ns after the waits: from the end of the awaited work to the next work."""
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
    gain = trial.try_one(scale(waits[:0], 1.0, host, 0.0, unwaited=waits), least=0.7)
    freed = int(window.match(_FREE)[calls].sum())
    lengths = trial.lengths(calls)
    names = trial.rank_names(calls, lengths)
    return trial.sight(len(calls), float(lengths.sum()), names, gain, freed=freed / window.steps)
