"""Floating-point operations and least bytes of every call, so that sums count nothing twice."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collector.traces.flops import estimate_work, find_formula
from collector.traces.kineto.calls import Calls
from collector.traces.kineto.classify import Kind
from collector.traces.kineto.model import Trace
from collector.traces.kineto.scratch import blocks

Floats = npt.NDArray[np.float64]


def sum_work(trace: Trace, calls: Calls) -> tuple[Floats, Floats]:
    """Return operations and least bytes of each call, NaN where unknown, without those of the calls inside it.

    aten::linear calls aten::addmm, and both have a formula: the work is the inner one's, and 0 is left of the outer.
    """
    flops, moved = _estimate(trace, calls)
    inner = [trace.log.scratch.floats(len(calls)) for _ in range(2)]
    known = np.concatenate([~np.isnan(flops[block]) for block in blocks(len(calls))] or [np.empty(0, bool)])
    for block in blocks(len(calls)):
        around = calls.find_around(known, block)
        inside = np.flatnonzero(known[block] & (around >= 0))
        for values, sums in zip((flops, moved), inner, strict=True):
            np.add.at(sums, around[inside], values[block][inside])
    for values, sums in zip((flops, moved), inner, strict=True):
        for block in blocks(len(calls)):
            values[block] = np.maximum(values[block] - sums[block], 0.0)
            trace.release()
    return flops, moved


def _estimate(trace: Trace, calls: Calls) -> tuple[Floats, Floats]:
    """Estimate each call once per different name and arguments."""
    flops, moved = (trace.log.scratch.floats(len(calls), np.nan) for _ in range(2))
    by_name = np.array([find_formula(name) is not None for name in trace.names], bool)
    width = len(trace.arguments.details) + 1
    find = _Estimates(trace, width)
    for block in blocks(len(calls)):
        rows = calls.rows[block]
        places = np.flatnonzero((trace.kinds.kind[rows] == Kind.OPERATOR) & by_name[trace.columns.name[rows]])
        rows = rows[places]
        keys, place = np.unique(trace.columns.name[rows] * width + trace.columns.args[rows], return_inverse=True)
        found = np.array([find[key] for key in keys.tolist()]).reshape(-1, 2)
        flops[block.start + places], moved[block.start + places] = found[place].T
        trace.release()
    return flops, moved


class _Estimates(dict[int, tuple[float, float]]):
    """Operations and least bytes by name and arguments, the number of a name being counted in steps of `width`."""

    def __init__(self, trace: Trace, width: int) -> None:
        super().__init__()
        self._names, self._width = trace.names, width
        self._shapes = trace.arguments.texts("Input Dims", "Input dims")
        self._dtypes, self._values = trace.arguments.texts("Input type"), trace.arguments.texts("Concrete Inputs")

    def __missing__(self, key: int) -> tuple[float, float]:
        name, code = divmod(key, self._width)
        work = estimate_work(self._names[name], self._shapes[code], self._dtypes[code], self._values[code])
        found = self[key] = (np.nan, np.nan) if work is None else (work.flops, work.moved_bytes)
        return found
