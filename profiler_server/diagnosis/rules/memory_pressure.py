"""Memory is short: processes wait for pages that were just thrown out."""

from __future__ import annotations

from profiler_server.analysis.results import Evidence
from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import Finding, Rule
from profiler_server.diagnosis.limits import MEMORY_STALL_FRAC
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.format import format_share


def _judge(case: Case) -> Finding | None:
    stalled = case.host.load.memory_stall_frac if case.host.load is not None else None
    if stalled is None or stalled < MEMORY_STALL_FRAC:
        return None
    return Finding(
        title="Memory is short",
        measured=f"For {format_share(stalled)} of the time something on this host, or in this container, waited for memory.",
        threshold=f"At least {format_share(MEMORY_STALL_FRAC)} of the time.",
        advice="The system throws out what it needs again, files of the data set first. Use fewer workers or a smaller "
        "prefetch_factor, keep data in arrays rather than in Python lists, which every worker copies in time, or ask for "
        "more memory.",
        change="loader = DataLoader(dataset, num_workers=2, prefetch_factor=2)  # each worker holds prefetch_factor batches",
        fix="enough memory",
        evidence=(Evidence("memory", "", "Memory of the processes over the steps"),),
        assumption="training itself waited in two thirds of that time",
        what_if=shorten_step(case, "memory", stalled * case.steps.mean_ns, 0.65),
        gain_range=(0.5, 1.5),
    )


RULE = Rule("memory_pressure", knob="memory_pressure", effort="argument", judge=_judge)
