"""A mode for finding errors is left on: anomaly detection, or algorithms that must be deterministic."""

from __future__ import annotations

from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import Finding, Rule
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    if case.facts.get("anomaly_mode") is True:
        return _find_anomaly_mode(case)
    if case.facts.get("deterministic") is True and case.device.is_used:
        return _find_deterministic()
    return None


def _find_anomaly_mode(case: Case) -> Finding:
    share = case.steps.share("forward", "backward")
    spent = case.steps.phases_ns["forward"] + case.steps.phases_ns["backward"]
    return Finding(
        title="Anomaly detection is on",
        measured=f"torch.autograd.set_detect_anomaly was on while steps ran; forward and backward take "
        f"{format_duration(spent)}, {format_share(share)} of the step.",
        threshold="Anomaly detection is on in steps that train.",
        advice="It keeps a Python traceback of every operator of the forward and looks for NaN after every operator of "
        "the backward. Small operators take several times as long. Switch it on only while you look for a NaN.",
        change="torch.autograd.set_detect_anomaly(False)",
        fix="without anomaly detection",
        evidence=(STEPS_PAGE,),
        severity="medium",
    )


def _find_deterministic() -> Finding:
    return Finding(
        title="Only deterministic algorithms are allowed",
        measured="torch.use_deterministic_algorithms was on while steps ran.",
        threshold="Deterministic algorithms on an accelerator.",
        advice="Scatter, index and some convolution kernels have slower deterministic versions. If runs need not be equal "
        "bit by bit, switch it off and compare.",
        change="torch.use_deterministic_algorithms(False)",
        fix="without deterministic algorithms",
        evidence=(STEPS_PAGE,),
        severity="low",
    )


RULE = Rule("debug_modes", knob="debug", effort="flag", judge=_judge)
