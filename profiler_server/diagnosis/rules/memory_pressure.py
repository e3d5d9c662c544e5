"""Memory is short: processes wait for pages that were just thrown out."""

from __future__ import annotations

from profiler_server.diagnosis.limits import MEMORY_STALL_FRAC
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Evidence
from profiler_server.format import format_share

_ADVICE = (
    "The system throws out what it needs again, files of the data set first. Use fewer workers or a smaller prefetch_factor, "
    "keep data in arrays rather than in Python lists, which every worker copies in time, or ask for more memory."
)


def _judge(case: Case) -> Finding | None:
    load = case.host.load
    if load is None:
        return None
    stalled = load.memory_stall_frac if load.memory_stall_frac is not None else load.system_stall_frac
    if stalled is None or stalled < MEMORY_STALL_FRAC:
        return None
    # Of the whole system it is not known whether this training was the one that waited.
    is_own = load.memory_stall_frac is not None
    where = "in the control group of this training" if is_own else "on this host, this training or another program,"
    return Finding(
        title="Memory is short",
        measured=f"For {format_share(stalled)} of the time something {where} waited for memory.",
        threshold=f"At least {format_share(MEMORY_STALL_FRAC)} of the time.",
        advice=_ADVICE,
        change="loader = DataLoader(dataset, num_workers=2, prefetch_factor=2)  # each worker holds prefetch_factor batches",
        fix="enough memory",
        evidence=(Evidence("memory", "", "Memory of the processes over the steps"),),
        assumption="training itself waited in two thirds of that time" if is_own else "",
        what_if=shorten_step(case, "memory", stalled * case.steps.mean_ns, 0.65) if is_own else None,
        gain_range=(0.5, 1.5),
    )


RULE = Rule("memory_pressure", knob="memory_pressure", effort="argument", judge=_judge)
