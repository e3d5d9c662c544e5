"""The names by which a trace marks what a step does."""

from __future__ import annotations

import re

LOADER = re.compile(r"enumerate\(DataLoader\)")
OPTIMIZER = re.compile(r"Optimizer\.(step|zero_grad)")
OPTIMIZER_STEP = re.compile(r"Optimizer\.step")
BACKWARD = re.compile(r"autograd::engine::evaluate_function|torch::autograd::|\w+Backward\d*$")
