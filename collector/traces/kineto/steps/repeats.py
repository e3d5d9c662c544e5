"""Find the loop in a trace that no mark tells of: the same work, launched again and again in the same order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Ints
from collector.traces.kineto.classify.kinds import Kind
from collector.traces.kineto.classify.trace import Trace

PATTERN_CONFIDENCE = 0.5
_LEAST_REPEATS = 3
_LEAST_LAUNCHES = 3
_LEAST_SHARE = 0.8
_LONGEST = 1 << 20


@dataclass(frozen=True)
class Pattern:
    """`starts_ns` are where the repeats begin on the host; `equal_frac` is how many of them do the very same work."""

    starts_ns: Ints
    first_name: str
    equal_frac: float


def find_pattern(trace: Trace) -> Pattern | None:
    """Find work that repeats: kernels of the busiest stream, or top-level operators where there is no device.

    The layers of a single pass repeat too. But a loop repeats all of its work, so nearly every name must occur once
    per repeat, or a multiple of that.
    """
    rows = _list_work(trace)
    if not 2 * _LEAST_REPEATS <= len(rows) <= _LONGEST:
        return None
    names, sequence, counts = np.unique(trace.columns.name[rows], return_inverse=True, return_counts=True)
    for repeats in np.unique(counts[counts >= _LEAST_REPEATS]).tolist():
        regular = (counts % repeats == 0).mean()
        if regular < _LEAST_SHARE:
            continue
        anchor = int(sequence[np.flatnonzero(counts[sequence] == repeats)[0]])
        at = np.flatnonzero(sequence == anchor)
        if np.median(np.diff(at)) < _LEAST_LAUNCHES:
            continue
        equal_frac = _compare(sequence, at)
        if equal_frac >= _LEAST_SHARE:
            starts = _find_launches(trace, rows[at])
            return Pattern(starts, trace.names[int(names[anchor])], equal_frac) if _rise(starts) else None
    return None


def _list_work(trace: Trace) -> Ints:
    """Return the slices whose order is looked at, by time."""
    rows = trace.sort(trace.is_any(Kind.KERNEL, Kind.COLLECTIVE))
    if not len(rows):
        rows = trace.sort(trace.is_operator & (trace.caller < 0))
    track = trace.lanes.track[rows]
    found: Ints = rows[track == np.bincount(track).argmax()] if len(rows) else rows
    return found


def _compare(sequence: Ints, at: Ints) -> float:
    """Return the share of the stretches from one anchor to the next that hold the same names in the same order."""
    stretches = [stretch.tobytes() for stretch in np.split(sequence, at)[1:]]
    most = max(stretches.count(stretch) for stretch in set(stretches[: _LEAST_REPEATS + 1]))
    # What follows the last repeat may be more than the loop, so the last one does not count against it.
    return min(most / max(len(stretches) - 1, 1), 1.0) if len(stretches) > _LEAST_REPEATS - 1 else 0.0


def _find_launches(trace: Trace, rows: Ints) -> Ints:
    launch = trace.links.launch[rows]
    return np.where(launch >= 0, trace.start_ns[launch], trace.start_ns[rows])


def _rise(starts: Ints) -> bool:
    return bool((np.diff(starts) > 0).all())
