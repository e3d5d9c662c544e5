"""Garbage that is collected between the calls of a step: two rules share that time."""

from __future__ import annotations

import numpy as np

from collector.format.steps import read_integers
from profiler_server.diagnosis.facts import Case


def measure_garbage_outside(case: Case) -> float:
    """Return the time per mean step of collections by which steps are longer outside of training than without one."""
    kept = case.steps.selection.kept
    gc_ns, gap_ns, tail_ns = (read_integers(case.steps.rows, name)[kept] for name in ("gc_ns", "gap_ns", "tail_ns"))
    outside = gap_ns + tail_ns
    if not gc_ns.any():
        return 0.0
    quiet = gc_ns == 0
    usual = float(np.median(outside[quiet])) if quiet.any() else float((outside - gc_ns).clip(0).min())
    return float(np.clip(outside - usual, 0.0, gc_ns).mean())
