"""Recording itself costs a noticeable part of the step."""

from __future__ import annotations

from profiler_server.diagnosis.limits import RECORDING_FRAC, RECORDING_LARGE_FRAC
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    overhead = case.manifest.overhead
    if overhead.share_frac is None or overhead.share_frac < RECORDING_FRAC:
        return None
    return Finding(
        title="Recording slows this run down",
        measured=f"Recording takes {format_duration(overhead.training_thread_ns_per_step)} of the training thread per "
        f"step ({format_share(overhead.share_frac)}); {overhead.how}.",
        threshold=f"At least {format_share(RECORDING_FRAC)} of the step.",
        advice="Collect less: the steps of this run are longer by about that much than without recording.",
        change='Profiler(output_path, level="important", data_pipeline=False)',
        fix="collecting less",
        evidence=(STEPS_PAGE,),
        severity="low" if overhead.share_frac >= RECORDING_LARGE_FRAC else "info",
    )


RULE = Rule("collector_overhead", knob="collector", effort="argument", judge=_judge)
