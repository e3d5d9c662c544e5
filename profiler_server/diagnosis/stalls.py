"""What steps lose to things that hold the training thread now and then: saves, recompilations."""

from __future__ import annotations

import numpy as np

from collector.format.intervals import Floats, Ints
from collector.format.steps import read_integers
from profiler_server.analysis.steps.interruptions import Interruptions
from profiler_server.diagnosis.facts import Case


def sum_in_steps(case: Case, found: Interruptions) -> Floats:
    """Return for each training step how long what began within it (or before the next) held the thread, ns."""
    starts = read_integers(case.steps.rows, "start_ns")
    at = starts.searchsorted(found.start_ns, side="right") - 1
    inside = at >= 0
    return np.bincount(at[inside], found.duration_ns[inside], len(starts)).astype(np.float64)


def measure_stalls(case: Case, found: Interruptions, spent_ns: Ints) -> float:
    """Return the share of the mean step that goes with what held the thread.

    `spent_ns` is what may be longer for it in each step: in those that it holds, as much as exceeds the median of the
    others goes with it, and at least the thing itself. Steps that the mean leaves out do not count.
    """
    kept = case.steps.selection.kept
    spent_ns, held_ns = spent_ns[kept], sum_in_steps(case, found)[kept]
    stalled = held_ns > 0
    usual = float(np.median(spent_ns[~stalled])) if not stalled.all() else float(spent_ns.min(initial=0))
    around = float(np.maximum(spent_ns[stalled] - usual, 0.0).sum())
    whole = float(case.steps.selection.duration_ns[kept].sum())
    return min(max(around, float(held_ns.sum())) / max(whole, 1.0), 1.0)
