"""What tools with published thresholds would say of the same recordings.

torch-tb-profiler 0.4.3 asks for workers when loading takes more than 5 % of the step. MindSpore's pipeline analyser, which
MindInsight shows, blames the data set when the queue before the device is empty in more than 60 % of the requests, asks
for workers when those use a core for more than 75 % of their time, and for fewer below 20 %. TraceML 0.5 names what
takes 10 % of the step and more (20 %: critical): waiting for input, or time outside of the traced phases; else, from
90 % of computing on, it says compute-bound.

They name an area, not a cause: "input", "outside" or "compute". An area that is right counts for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from collector.format.steps import share_phases, train_steps
from profiler_server.analysis.data.queues import summarize_queues

Area = Literal["input", "outside", "compute", ""]
"""Empty where nothing is said."""

TORCH_TB_LOADER_FRAC = 0.05
MINDSPORE_EMPTY_FRAC = 0.60
TRACEML_OVERHEAD_FRAC, TRACEML_COMPUTE_FRAC = 0.10, 0.90
NAMES = ("torch-tb-profiler", "MindInsight", "TraceML")

AREAS: Mapping[str, Area] = {
    "python_gap": "outside",
    "logging_stall": "outside",
    "checkpoint_stall": "outside",
    "periodic_stall": "outside",
    "validation_share": "outside",
    "gc_pauses": "outside",
    "threads_over_cores": "compute",
    "float64": "compute",
    "debug_modes": "compute",
    "optimizer_loop": "compute",
    "recompiles": "compute",
    "graph_breaks": "compute",
    "needless_grad": "compute",
    "python_in_step": "compute",
    "rows_in_loop": "compute",
    "subnormals": "compute",
    "threads_too_few": "compute",
    "drift": "outside",
    "memory_creep": "outside",
    "warm_up": "outside",
    "collector_overhead": "",
    "noisy_host": "",
}
"""The area of each of our rules that is not about loading; the last two are about no part of the program."""


@dataclass(frozen=True)
class Shares:
    """What the thresholds are about, as shares of the step; `empty` of the requests, None without a queue."""

    loading: float
    computing: float
    outside: float
    empty: float | None


def find_area(cause: str) -> Area:
    return AREAS.get(cause, "input") if cause else ""


def read_shares(rank: RankRun) -> Shares:
    """Read the shares of a rank. Raises TableMissingError where it recorded no steps."""
    phases = {phase.name: phase.share_frac for phase in share_phases(train_steps(rank.table("steps")))}
    computing = sum(phases.get(name, 0.0) for name in ("forward", "backward", "optimizer"))
    outside = sum(phases.get(name, 0.0) for name in ("gap", "tail"))
    loading = phases.get("data_wait", 0.0)
    try:
        queues = summarize_queues(rank)
    except RunError:
        queues = ()
    empty = queues[-1].empty_frac if queues else None
    return Shares(loading, computing, outside, empty)


def judge(shares: Shares) -> dict[str, Area]:
    """Return what each tool says first."""
    return {
        "torch-tb-profiler": "input" if shares.loading > TORCH_TB_LOADER_FRAC else "",
        "MindInsight": "input" if shares.empty is not None and shares.empty > MINDSPORE_EMPTY_FRAC else "",
        "TraceML": _judge_traceml(shares),
    }


def _judge_traceml(shares: Shares) -> Area:
    if max(shares.loading, shares.outside) >= TRACEML_OVERHEAD_FRAC:
        return "input" if shares.loading >= shares.outside else "outside"
    return "compute" if shares.computing >= TRACEML_COMPUTE_FRAC else ""
