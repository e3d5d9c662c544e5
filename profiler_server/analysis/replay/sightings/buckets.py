"""Gradients that are reduced bucket by bucket during the backward, and the savings of larger buckets.

A collective takes a latency, and a time for each of its bytes. Both are fitted to the reductions of the window. A
larger bucket is sent at the time at which its last part was sent, and pays the latency only once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Floats, Intervals, Ints, Mask, unite
from profiler_server.analysis.replay.graph import Changes
from profiler_server.analysis.replay.trial import Change, Trial
from profiler_server.analysis.replay.window import COLLECTIVE, OPERATOR
from profiler_server.diagnosis.limits.replay import CAPS_MIB, LEAST_BUCKETS, LEAST_SIZES_RATIO, MOST_MISFIT_FRAC
from profiler_server.facts.machine import Gain, Sighting

_REDUCE = re.compile(r"all_?reduce", re.IGNORECASE)
_CALL = re.compile(r"all_?reduce|^record_param_comms$", re.IGNORECASE)
_HOOK = re.compile(r"AccumulateGrad")
_ENGINE = re.compile(r"^autograd::engine")
_DEEPEST_CALL = 10


@dataclass(frozen=True)
class TransferFit:
    """The time of a reduction without waiting for other ranks: a latency, and a time for each byte."""

    latency_ns: float
    ns_per_byte: float


@dataclass(frozen=True)
class Buckets:
    """The reductions in the backwards of the window, in the order in which they ran: slice, graph node, size and length
    of each. `backward` is the number of the backward that contains the reduction.
    """

    rows: Ints
    nodes: Ints
    bytes: Ints
    length_ns: Ints
    backward: Ints


@dataclass(frozen=True)
class _Joining:
    """Sequences of buckets (`runs`, indexes) that are each replaced by one bucket of at least `cap_mib`, and the fit
    for the time of a bucket.
    """

    cap_mib: int
    runs: tuple[Ints, ...]
    fit: TransferFit

    def list_lengths(self, buckets: Buckets, saved_frac: float, waits_add_up: bool) -> Floats:
        """Return the time of each larger bucket in ns.

        With `waits_add_up` it is the sum of the joined buckets' times, minus `saved_frac` of the omitted latencies.
        Otherwise it is the fitted time of the bytes, plus the longest wait of a joined bucket.
        """
        fit = self.fit
        found = []
        for run in self.runs:
            length, size = buckets.length_ns[run].astype(np.float64), buckets.bytes[run]
            saved = saved_frac * fit.latency_ns * (len(run) - 1)
            if waits_add_up:
                found.append(max(float(length.sum()) - saved, float(length.max())))
                continue
            waits = np.maximum(length - fit.latency_ns - fit.ns_per_byte * size, 0.0)
            found.append(fit.latency_ns + fit.ns_per_byte * float(size.sum()) + float(waits.max()))
        return np.array(found)


def find_larger_buckets(trial: Trial) -> Sighting | None:
    """Return the sighting of gradients that are reduced in several buckets; None without them. The gain is that of
    the best larger bucket size."""
    buckets = list_buckets(trial)
    if buckets is None:
        return None
    lengths, steps = buckets.length_ns, trial.window.steps
    figures = {
        "bytes": float(buckets.bytes.sum()) / steps,
        "largest_bytes": float(buckets.bytes.max()),
        "backwards": len(np.unique(buckets.backward)) / steps,
    }
    names = trial.rank_names(buckets.rows, lengths)
    fit = fit_transfers(buckets.bytes, lengths)
    best = _find_best(trial, buckets, fit) if fit is not None else None
    if fit is None or best is None:
        return trial.sight(len(buckets.rows), float(lengths.sum()), names, None, **figures)
    joining, gain = best
    joined = sum(len(run) - 1 for run in joining.runs)
    figures |= {
        "cap_mib": float(joining.cap_mib),
        "joined": (len(buckets.rows) - joined) / steps,
        "latency_ns": fit.latency_ns,
        "bytes_per_s": 1e9 / fit.ns_per_byte,
    }
    return trial.sight(len(buckets.rows), float(lengths.sum()), names, gain, **figures)


def list_buckets(trial: Trial) -> Buckets | None:
    """Return the reductions that the hooks of ready gradients start. None if no backward has several reductions of
    known size.

    Reductions started elsewhere are left out, because the work after them may need their result at once.
    """
    window = trial.window
    rows = np.flatnonzero((window.kind == COLLECTIVE) & window.match(_REDUCE) & (window.message_bytes > 0))
    rows = rows[(_find_around(trial, rows, _HOOK) >= 0) & (trial.graph.node_of_row[rows] >= 0)]
    if not len(rows) or len(np.unique(window.track[rows])) > 1:
        return None
    nodes = trial.graph.node_of_row[rows]
    order = np.argsort(nodes, kind="stable")
    rows, nodes = rows[order], nodes[order]
    backward = _number_backwards(trial, trial.top[_find_around(trial, rows, _HOOK)])
    kept = np.bincount(backward)[backward] >= LEAST_BUCKETS
    if not kept.any():
        return None
    rows, nodes, backward = rows[kept], nodes[kept], backward[kept]
    return Buckets(rows, nodes, window.message_bytes[rows], trial.lengths(rows), backward)


def _number_backwards(trial: Trial, callers: Ints) -> Ints:
    """Return for each operator of the autograd engine the number of its backward. Other outermost operators separate
    backwards.
    """
    window = trial.window
    own_top = trial.top == np.arange(len(window.ids))
    outer = np.flatnonzero((window.kind == OPERATOR) & own_top & np.isin(window.track, window.threads))
    of_engine: Mask = window.match(_ENGINE)[outer]
    begins = of_engine & ~np.concatenate([[False], of_engine[:-1]])
    number = np.cumsum(begins)
    return number[np.searchsorted(outer, callers)]


def fit_transfers(size_bytes: Ints, length_ns: Ints) -> TransferFit | None:
    """Return latency and time per byte, fitted to the shortest reduction of each size; None without a good fit.

    A longer reduction of the same size may contain a wait for a slower rank.
    """
    sizes, place = np.unique(size_bytes, return_inverse=True)
    if len(sizes) < 2 or sizes[-1] < LEAST_SIZES_RATIO * sizes[0]:
        return None
    shortest = np.full(len(sizes), np.inf)
    np.minimum.at(shortest, place, length_ns.astype(np.float64))
    # Weighed by the time: what is off by a tenth counts the same whether it is long or short.
    slope, latency = np.polyfit(sizes.astype(np.float64), shortest, 1, w=1.0 / np.maximum(shortest, 1.0))
    if slope <= 0 or latency <= 0:
        return None
    misfit = np.abs((latency + slope * sizes) / np.maximum(shortest, 1.0) - 1.0)
    return TransferFit(float(latency), float(slope)) if misfit.max() <= MOST_MISFIT_FRAC else None


def _find_best(trial: Trial, buckets: Buckets, fit: TransferFit) -> tuple[_Joining, Gain] | None:
    """Return the bucket size with the largest usual gain, and the gain. If gains are equal, the smallest size counts.

    None if no size joins buckets, or if the replay is not valid.
    """
    found: list[tuple[float, _Joining]] = []
    tried: set[tuple[int, ...]] = set()
    for cap_mib in CAPS_MIB:
        joining = _Joining(cap_mib, _join(buckets, cap_mib << 20), fit)
        shape = tuple(int(run[-1]) * len(buckets.rows) + len(run) for run in joining.runs)
        if not shape or shape in tried:
            continue
        tried.add(shape)
        usual = _take(trial, buckets, joining, 1.0)
        gain = trial.try_change(usual, usual, usual)
        if gain is None:
            return None
        found.append((gain.frac, joining))
    if not found:
        return None
    _, best = max(found, key=lambda entry: entry[0])
    low, usual = (_take(trial, buckets, best, frac) for frac in (0.5, 1.0))
    gain = trial.try_change(low, usual, _take(trial, buckets, best, 1.0, waits_add_up=False))
    return None if gain is None else (best, gain)


def _join(buckets: Buckets, cap_bytes: int) -> tuple[Ints, ...]:
    """Return the sequences of buckets that become one bucket, as indexes. A sequence ends when it reaches `cap_bytes`,
    or when its backward ends.
    """
    runs: list[list[int]] = []
    held = 0
    for at, (size, backward) in enumerate(zip(buckets.bytes.tolist(), buckets.backward.tolist(), strict=True)):
        if not runs or held >= cap_bytes or backward != buckets.backward[at - 1]:
            runs.append([])
            held = 0
        runs[-1].append(at)
        held += size
    return tuple(np.array(run, np.int64) for run in runs if len(run) > 1)


def _take(trial: Trial, buckets: Buckets, joining: _Joining, saved_frac: float, *, waits_add_up: bool = True) -> Change:
    """Return the change to larger buckets. With `saved_frac` 1 the omitted calls also take no host time. A smaller
    `saved_frac` saves only this share of the latencies.
    """
    last = np.array([run[-1] for run in joining.runs], np.int64)
    gone = np.concatenate([run[:-1] for run in joining.runs])
    factors = joining.list_lengths(buckets, saved_frac, waits_add_up) / np.maximum(buckets.length_ns[last], 1)
    host = trial.host_between(_find_calls(trial, buckets.rows[gone])) if saved_frac == 1.0 else None

    def change(changes: Changes) -> None:
        changes.device[buckets.nodes[last]] = factors
        changes.skipped[buckets.nodes[gone]] = True
        if host is not None:
            changes.host[host] = 0.0

    return change


def _find_calls(trial: Trial, rows: Ints) -> Intervals:
    found = _find_around(trial, rows, _CALL)
    found = found[found >= 0]
    return unite(trial.window.start_ns[found], trial.window.end_ns[found])


def _find_around(trial: Trial, rows: Ints, pattern: re.Pattern[str]) -> Ints:
    """Return for each piece of work the outermost slice around its launch whose name matches; -1 for none.

    The library's annotations lie between this slice and the launch, so `Trial.caller` does not find the slice.
    """
    window = trial.window
    named, at = window.match(pattern), window.launch[rows]
    found = np.full(len(rows), -1, np.int64)
    for _ in range(_DEEPEST_CALL):
        found = np.where((at >= 0) & named[at], at, found)
        at = np.where(at >= 0, window.parent[at], -1)
    return found
