"""The names by which a trace marks what a step does."""

from __future__ import annotations

import re

import numpy as np

from collector.format.intervals import Mask
from collector.traces.kineto.model import Trace

LOADER = re.compile(r"enumerate\(DataLoader\)")
OPTIMIZER = re.compile(r"Optimizer\.(step|zero_grad)")
OPTIMIZER_STEP = re.compile(r"Optimizer\.step")
BACKWARD = re.compile(r"autograd::engine::evaluate_function|torch::autograd::|\w+Backward\d*$")


def are_named(trace: Trace, pattern: re.Pattern[str]) -> Mask:
    """Say of each slice whether its name begins with a pattern."""
    wanted = np.array([bool(pattern.match(name)) for name in trace.names], bool)
    return wanted[trace.columns.name] if len(wanted) else np.zeros(len(trace.columns), bool)
