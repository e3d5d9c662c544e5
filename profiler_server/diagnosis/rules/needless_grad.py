"""Inference that records its operators for a backward that never comes."""

from __future__ import annotations

from profiler_server.analysis.results import Abstention
from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import Finding, Rule
from profiler_server.diagnosis.limits import RECORDED_FRAC
from profiler_server.diagnosis.seen import look_for
from profiler_server.diagnosis.wording import OPERATORS_PAGE
from profiler_server.format import format_share


def _judge(case: Case) -> Finding | Abstention | None:
    if case.steps.phases_ns["backward"] or case.steps.phases_ns["optimizer"]:
        return None
    seen = look_for(case, "needless_grad", "recorded_gradients")
    if seen is None or isinstance(seen, Abstention):
        return seen
    share = seen.figures["share"]
    if share < RECORDED_FRAC:
        return None
    return Finding(
        title="Inference records gradients",
        measured=f"The window has no backward, yet {format_share(share)} of its operators ({seen.count:.0f} per "
        f"{case.steps.noun}) ran with gradients enabled.",
        threshold=f"At least {format_share(RECORDED_FRAC)} of the operators of a window without a backward.",
        advice="Run inference in inference mode: results of layers are freed at once, and operators do less on the host. How "
        "much time that saves is not known beforehand.",
        change="with torch.inference_mode():\n    out = model(batch)",
        fix="inference_mode",
        evidence=(OPERATORS_PAGE,),
    )


RULE = Rule("needless_grad", knob="grad", effort="flag", judge=_judge)
