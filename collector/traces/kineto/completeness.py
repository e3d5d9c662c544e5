"""Tell whether the last step of a trace is all there, by what the other steps do.

May import numpy and its neighbours in this room.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from collector.traces.kineto.clock import Ints
from collector.traces.kineto.marks import BACKWARD, OPTIMIZER_STEP
from collector.traces.kineto.model import Trace

Rows = Callable[[Ints], Ints]

SHORT_SHARE = 0.8
"""Only a last step that is shorter than this share of the one before may be a part of one."""


def is_cut_off(trace: Trace, lengths_ns: Ints, row_of_time: Rows, end_ns: int) -> bool:
    """Say whether the last step is a part of one: it is short, and lacks what every other step has.

    What a step must have is a backward and an optimizer's step if the others have them, else every name of host work
    that the others share. A short step is whole if it has that. Where the others share nothing, only a step that ends
    with the trace (`end_ns` is its end on the host) was cut off. `row_of_time` tells the steps of times.
    """
    if lengths_ns[-1] >= SHORT_SHARE * lengths_ns[-2]:
        return False
    shared, last = _find_names(trace, len(lengths_ns), row_of_time)
    marks = {mark for mark in shared if any(pattern.match(trace.names[mark]) for pattern in (OPTIMIZER_STEP, BACKWARD))}
    if shared:
        return not (marks or shared) <= last
    return end_ns >= int(trace.end_ns.max())


def _find_names(trace: Trace, steps: int, row_of_time: Rows) -> tuple[set[int], set[int]]:
    """Return the names of host work that all steps but the last share, and those of the last."""
    width = max(len(trace.names), 1)
    met = [np.empty(0, np.int64)]
    for rows in trace.find(trace.is_host_work):
        step = row_of_time(trace.start_ns[rows])
        met.append(np.unique(step[step >= 0] * width + trace.columns.name[rows[step >= 0]]))
    step, name = np.divmod(np.unique(np.concatenate(met)), width)
    counts = np.bincount(name[step < steps - 1], minlength=width)
    return set(np.flatnonzero(counts == steps - 1).tolist()), set(name[step == steps - 1].tolist())
