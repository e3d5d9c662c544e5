"""A trace with its steps, phases and time base: what every table is built from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from collector.format.arrays import from_numbers
from collector.format.intervals import Ints
from collector.traces.kineto.classify.trace import Trace
from collector.traces.kineto.classify.tree import Tree
from collector.traces.kineto.steps.model import Phases, Steps


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
        trace, steps = self.trace, self.steps

        def find(rows: slice) -> Ints:
            launch = trace.links.launch[rows]
            times = np.where(launch >= 0, trace.start_ns[launch], trace.start_ns[rows])
            on_device = ~trace.is_host[rows] & (launch < 0)
            return np.where(on_device, steps.locate(times, host=False), steps.locate(times))

        return trace.log.scratch.compute(len(trace.columns), find)

    def number_steps(self, rows: Ints) -> pa.Array:
        """Return the step numbers of rows of `steps`, null for what is no step."""
        return from_numbers(np.append(self.steps.number, 0)[rows], rows < 0)

    def to_run(self, times_ns: Ints) -> Ints:
        return times_ns - self.origin_ns
