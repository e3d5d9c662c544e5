"""A trace with its steps, phases and time base: what every table is built from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collector.traces.kineto.behind import Phases
from collector.traces.kineto.clock import Ints
from collector.traces.kineto.model import Trace
from collector.traces.kineto.scratch import blocks
from collector.traces.kineto.steps import Steps
from collector.traces.kineto.tree import Tree


@dataclass(frozen=True)
class Reading:
    """`origin_ns` is the run's epoch in the file's own time base."""

    trace: Trace
    steps: Steps
    phases: Phases
    tree: Tree
    origin_ns: int

    @cached_property
    def step_row(self) -> Ints:
        """The row in `steps` of each slice, -1 for none: of the launch, for device work that is linked to one."""
        trace, found = self.trace, self.trace.log.scratch.column()
        for rows in blocks(len(trace.columns)):
            launch = trace.links.launch[rows]
            times = trace.start_ns[rows].copy()
            launched = np.flatnonzero(launch >= 0)
            times[launched] = trace.start_ns[launch[launched]]
            on_device = ~trace.is_host[rows] & (launch < 0)
            found.append(np.where(on_device, self.steps.locate(times, host=False), self.steps.locate(times)))
            trace.release()
        return found.finish()

    def number_steps(self, rows: Ints) -> tuple[Ints, np.ndarray]:
        """Return the step number of rows of `steps`, and which rows are no step."""
        absent = rows < 0
        if not len(self.steps):
            return np.zeros(len(rows), np.int64), np.ones(len(rows), bool)
        return self.steps.number[np.maximum(rows, 0)], absent

    def to_run(self, times_ns: Ints) -> Ints:
        """Return times as ns since the run's epoch."""
        return times_ns - self.origin_ns
