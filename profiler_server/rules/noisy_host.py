"""Other programs used the processors while the run was recorded."""

from __future__ import annotations

from profiler_server.format import format_share
from profiler_server.rules.case import STEPS_PAGE, Case, Finding, Rule

_SHARE = 0.25


def _judge(case: Case) -> Finding | None:
    if case.host is None or case.host.others < _SHARE * case.cores:
        return None
    share = min(1.0, case.host.others / case.cores)
    return Finding(
        title="Other programs share this host",
        measured=f"Other programs used {case.host.others:.1f} of {case.cores:g} usable cores on average.",
        threshold=f"More than {format_share(_SHARE)} of the cores. Every other rule asks for more gain here "
        f"(5 % + {format_share(0.25 * share)}), and ranges are wider.",
        advice="Step times vary with what else runs. Measure again on a quiet host before trusting small differences.",
        change="uptime; top -o %CPU  # see what else runs",
        fix="a quiet host",
        evidence=(STEPS_PAGE,),
    )


RULE = Rule("noisy_host", knob="host", effort="semantics", judge=_judge)
