"""The loader took long to start."""

from __future__ import annotations

from profiler_server.diagnosis.limits import WARM_UP_FRAC, WARM_UP_NS
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Evidence
from profiler_server.facts.steps import read_column
from profiler_server.format import format_duration, format_share

_FORKED = (
    "Making the iterator of a dataset takes long: do in the worker, at its first sample, what the dataset does at once."
)
_SPAWNED = (
    "Each worker starts a new Python, imports the script's modules, and gets a copy of the dataset. Keep the dataset small "
    "(paths, not samples), import what is heavy only where it is used, or start workers by fork or forkserver."
)


def _judge(case: Case) -> Finding | None:
    loader, rows = case.loading.loader, case.steps.rows
    if loader is None or not loader.num_workers or not rows.num_rows:
        return None
    started_ns = int(read_column(rows, "loader_start_ns")[0])
    share = started_ns / float(read_column(rows, "duration_ns").sum())
    if started_ns < WARM_UP_NS or share < WARM_UP_FRAC:
        return None
    forks = loader.start_method == "fork"
    return Finding(
        title="The workers take long to start",
        measured=f"Starting {loader.num_workers} workers ({loader.start_method or 'start method not known'}) took "
        f"{format_duration(started_ns)}, {format_share(share)} of the recorded training.",
        threshold=f"At least {format_duration(WARM_UP_NS)} and {format_share(WARM_UP_FRAC)} of the recorded training.",
        advice=_FORKED if forks else _SPAWNED,
        change='loader = DataLoader(dataset, num_workers=4, persistent_workers=True, multiprocessing_context="forkserver")',
        fix="workers that start quickly",
        evidence=(Evidence("steps", "step=1", "The first step"),),
    )


RULE = Rule("slow_start", knob="start", effort="argument", judge=_judge)
