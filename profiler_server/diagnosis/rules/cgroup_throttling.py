"""The control group of the job uses up its quota of processor time, and is stopped until the next period."""

from __future__ import annotations

from profiler_server.diagnosis.limits import THROTTLED_FRAC
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_cores, format_share


def _judge(case: Case) -> Finding | None:
    load = case.host.load
    if load is None or load.throttled_frac is None or load.throttled_cores is None:
        return None
    # The group is stopped processor by processor: at least this part of the time, all of them are.
    processors = max(case.manifest.cpu_count or case.host.cores, 1)
    stopped = min(load.throttled_frac, load.throttled_cores / processors)
    if stopped < THROTTLED_FRAC:
        return None
    return Finding(
        title="The container is stopped for using up its processor time",
        measured=f"In {format_share(load.throttled_frac)} of its periods the control group used up its quota "
        f"({format_cores(case.host.cores)}) and was stopped; on average {load.throttled_cores:.1f} processors stood still.",
        threshold=f"Stopped for at least {format_share(THROTTLED_FRAC)} of the time.",
        advice="Give the job more processor time (in Kubernetes, raise or drop the CPU limit), or let it use less: threads "
        "and workers together no more than the quota has cores, or all of them are stopped at once.",
        change=f"torch.set_num_threads({max(1, int(case.host.cores))})\n"
        "# Kubernetes: resources.limits.cpu; docker run --cpus; systemd: CPUQuota",
        fix="a quota that is not used up",
        evidence=(STEPS_PAGE,),
        assumption="the job is stopped no more",
        what_if=shorten_step(case, "stopped", stopped * case.steps.mean_ns, 0.8),
        gain_range=(0.5, 1.25),
    )


RULE = Rule("cgroup_throttling", knob="quota", effort="flag", judge=_judge)
