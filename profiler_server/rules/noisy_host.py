"""Other programs used the processors while the run was recorded."""

from __future__ import annotations

from profiler_server.diagnosis.case import STEPS_PAGE, Case, Finding, Rule
from profiler_server.format import format_share

_SHARE = 0.25


def _judge(case: Case) -> Finding | None:
    share = case.loop.contention_frac
    if share < _SHARE:
        return None
    used = (
        f"Other programs used {case.host.others:.1f} of {case.cores:g} usable cores on average. " if case.host else ""
    )
    stretch = 1.0 / (1.0 - min(share, 0.99))
    slower = f"Work took about {stretch:.1f} times its processor time." if case.host is None else ""
    return Finding(
        title="Other programs share this host",
        measured=f"{used}{slower}".strip(),
        threshold=f"More than {format_share(_SHARE)} of the cores. Every other rule asks for more gain here "
        f"(5 % + {format_share(0.25 * share)}), and ranges are wider.",
        advice="Step times vary with what else runs. Measure again on a quiet host before trusting small differences.",
        change="uptime; top -o %CPU  # see what else runs",
        fix="a quiet host",
        evidence=(STEPS_PAGE,),
    )


RULE = Rule("noisy_host", knob="host", effort="semantics", judge=_judge)
