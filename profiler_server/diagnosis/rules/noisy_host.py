"""Other programs used the processors while the run was recorded."""

from __future__ import annotations

from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import Finding, Rule
from profiler_server.diagnosis.limits import CONTENTION_WEIGHT, MIN_GAIN_FRAC, NOISY_FRAC
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.format import format_cores, format_share


def _judge(case: Case) -> Finding | None:
    share = case.loading.loop.contention_frac
    if share < NOISY_FRAC:
        return None
    return Finding(
        title="Other programs share this host",
        measured=_say_load(case),
        threshold=f"More than {format_share(NOISY_FRAC)} of the cores. Every other rule asks for more gain here "
        f"({format_share(MIN_GAIN_FRAC)} + {format_share(CONTENTION_WEIGHT * share)}), and ranges are wider.",
        advice="Step times vary with what else runs. Measure again on a quiet host before trusting small differences.",
        change="uptime; top -o %CPU  # see what else runs",
        fix="a quiet host",
        evidence=(STEPS_PAGE,),
    )


def _say_load(case: Case) -> str:
    if case.host.load is not None:
        return f"Other programs used {case.host.load.others:.1f} of {format_cores(case.host.cores)} on average."
    stretch = 1.0 / (1.0 - min(case.loading.loop.contention_frac, 0.99))
    return f"Work took about {stretch:.1f} times its processor time."


RULE = Rule("noisy_host", knob="host", effort="semantics", judge=_judge)
