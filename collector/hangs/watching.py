"""What the recorder of a rank takes for a hang: from how long on a silence counts, and what the stack says meanwhile."""

from __future__ import annotations

import math
import os

VARIABLE = "PROFILER_HANG_S"
LEAST_S = 30.0
"""Without the variable. At 0 or less nothing is said of jobs that stand still."""
_DISPATCH, _OF_RANKS = "/torch/_ops.py:", "/torch/distributed/"
_LONG_WORK = (
    "torch/serialization.py",
    "torch/distributed/checkpoint/",
    "torch/_dynamo/",
    "torch/_inductor/",
    "/triton/",
    "/pdb.py",
    "/bdb.py",
    "/ipykernel/",
)
"""Files whose functions save, compile or wait for a person, which takes as long as it takes."""
_LIBRARIES = ("/torch/", "/site-packages/", "/dist-packages/", "/lib/python")


def read_threshold_ns() -> int:
    try:
        least_s = float(os.environ.get(VARIABLE, ""))
    except ValueError:
        least_s = LEAST_S
    return int((least_s if math.isfinite(least_s) else LEAST_S) * 1e9)


def describe_innermost(text: str) -> str:
    """Return where a stack stands: its innermost function, and the innermost of the script that called it."""
    lines = text.splitlines()
    if not lines:
        return ""
    own = next((line for line in reversed(lines) if not any(part in line for part in _LIBRARIES)), lines[-1])
    called = "" if own == lines[-1] else f", called from {_cut_folder(own)}"
    return _cut_folder(lines[-1]) + called


def is_long_work(text: str) -> bool:
    """Say whether a stack is in code that saves, compiles or waits for a person."""
    return any(part in text for part in _LONG_WORK)


def waits_for_ranks(text: str) -> bool:
    """Say whether a stack ends in torch's code for several ranks, or in an operator that was called from there."""
    inner = next((line for line in reversed(text.splitlines()) if _DISPATCH not in line), "")
    return _OF_RANKS in inner


def _cut_folder(line: str) -> str:
    name, _, place = line.partition(" (")
    return f"{name} ({place.rpartition('/')[2]}" if place else name
