"""Floating-point operations and least bytes of every call, so that sums count nothing twice.

May import numpy, `collector.traces.flops` and its neighbours in this room.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collector.traces.flops import estimate_work, find_formula
from collector.traces.kineto.calls import Calls
from collector.traces.kineto.classify import Kind
from collector.traces.kineto.model import Mask, Trace

Floats = npt.NDArray[np.float64]


def sum_work(trace: Trace, calls: Calls) -> tuple[Floats, Floats]:
    """Return operations and least bytes of each call, NaN where unknown, without those of the calls inside it.

    aten::linear calls aten::addmm, and both have a formula: the work is the inner one's, and 0 is left of the outer.
    """
    flops, moved = _estimate(trace, calls)
    known = ~np.isnan(flops)
    around = calls.find_around(known)
    inside = np.flatnonzero(known & (around >= 0))
    return _take_inner(flops, around, inside), _take_inner(moved, around, inside)


def _estimate(trace: Trace, calls: Calls) -> tuple[Floats, Floats]:
    """Estimate each call once per different name and arguments."""
    flops, moved = np.full((2, len(calls)), np.nan)
    places = np.flatnonzero(_has_formula(trace, calls))
    if not len(places):
        return flops, moved
    rows = calls.rows[places]
    width = len(trace.arguments.details) + 1
    keys, place = np.unique(trace.columns.name[rows] * width + trace.columns.args[rows], return_inverse=True)
    shapes = trace.arguments.texts("Input Dims", "Input dims")
    dtypes, values = trace.arguments.texts("Input type"), trace.arguments.texts("Concrete Inputs")
    found = np.full((len(keys), 2), np.nan)
    for at, key in enumerate(keys.tolist()):
        name, code = divmod(key, width)
        work = estimate_work(trace.names[name], shapes[code], dtypes[code], values[code])
        if work is not None:
            found[at] = work.flops, work.moved_bytes
    flops[places], moved[places] = found[place].T
    return flops, moved


def _has_formula(trace: Trace, calls: Calls) -> Mask:
    by_name = np.array([find_formula(name) is not None for name in trace.names], bool)
    operators: Mask = trace.kinds.kind[calls.rows] == Kind.OPERATOR
    return operators & by_name[trace.columns.name[calls.rows]] if len(by_name) else operators


def _take_inner(values: Floats, around: npt.NDArray[np.int64], inside: npt.NDArray[np.int64]) -> Floats:
    inner = np.zeros(len(values))
    np.add.at(inner, around[inside], values[inside])
    left: Floats = np.maximum(values - inner, 0.0)
    return left
