"""Other programs used the processors while the run was recorded."""

from __future__ import annotations

from profiler_server.diagnosis.limits import NOISY_FRAC
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_cores, format_share


def _judge(case: Case) -> Finding | None:
    load, share = case.host.load, case.host.others_frac
    if load is None or share < NOISY_FRAC:
        return None
    return Finding(
        title="Other programs share this host",
        measured=f"Other programs used {load.others:.1f} of the {format_cores(case.host.cores)} that this run may use "
        f"({format_share(share)}) on average.",
        threshold=f"{format_share(NOISY_FRAC)} of the cores or more. Every other rule asks for a larger gain here, and "
        "ranges are wider.",
        advice="Step times vary with what else runs. Measure again on a quiet host before trusting small differences.",
        change="uptime; top -o %CPU  # see what else runs",
        fix="a quiet host",
        evidence=(STEPS_PAGE,),
    )


RULE = Rule("noisy_host", knob="host", effort="semantics", judge=_judge)
