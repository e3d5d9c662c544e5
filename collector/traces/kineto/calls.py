"""The calls of operators: which slices they are, and which call stands in which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.traces.kineto.clock import Ints
from collector.traces.kineto.model import Mask, Trace
from collector.traces.kineto.scratch import blocks


@dataclass(frozen=True)
class Calls:
    """`rows` are the slices of operators in order; `up` is the place in `rows` of the call around each, -1 for none."""

    rows: Ints
    up: Ints

    @classmethod
    def find(cls, trace: Trace) -> Calls:
        scratch = trace.log.scratch
        rows, up = scratch.where(trace.is_operator), scratch.column()
        for block in blocks(len(rows)):
            caller = trace.caller[rows[block]]
            up.append(np.where(caller >= 0, np.searchsorted(rows, caller), -1))
            trace.release()
        return cls(rows, up.finish())

    def __len__(self) -> int:
        return len(self.rows)

    def place(self, rows: Ints) -> Ints:
        """Return the places in `rows` of slices that are operators."""
        return np.searchsorted(self.rows, rows)

    def find_around(self, wanted: Mask, block: slice) -> Ints:
        """Return the place of the nearest wanted call around each call of a block, -1 for none."""
        found = self.up[block].copy()
        rest = np.flatnonzero(found >= 0)
        while len(rest):
            rest = rest[~wanted[found[rest]]]
            found[rest] = self.up[found[rest]]
            rest = rest[found[rest] >= 0]
        return found
