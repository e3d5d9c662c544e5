"""Gradients that nobody uses: inference that records its operators, and models that no optimizer updates."""

from __future__ import annotations

from collections.abc import Mapping

from profiler_server.diagnosis.limits import RECORDED_FRAC, UNUSED_GRADIENTS_FRAC
from profiler_server.diagnosis.seen import look_for
from profiler_server.diagnosis.what_if import shorten_phases
from profiler_server.diagnosis.wording import OPERATORS_PAGE, STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_count, format_duration, format_share


def _judge(case: Case) -> Finding | Abstention | None:
    if case.steps.phases_ns["backward"] or case.steps.phases_ns["optimizer"]:
        return _judge_training(case)
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


def _judge_training(case: Case) -> Finding | None:
    """Look for parameters with gradients that no optimizer updates, such as those of a teacher or a frozen backbone."""
    found = case.facts.get("unused_gradients")
    noted = [found.get(name) for name in ("parameters", "updated")] if isinstance(found, Mapping) else []
    counts = [count for count in noted if isinstance(count, int) and count >= 0]
    if len(counts) != 2:
        return None
    unused, updated = counts
    share = unused / max(unused + updated, 1)
    backward_ns = case.steps.phases_ns["backward"]
    if share < UNUSED_GRADIENTS_FRAC or not backward_ns:
        return None
    return Finding(
        title="Gradients are computed for a model that is not trained",
        measured=f"{format_count(unused)} parameters have gradients, but no optimizer updated them in the first steps: "
        f"{format_share(share)} of all with gradients. The backward takes {format_duration(backward_ns)}, "
        f"{format_share(case.steps.share('backward'))} of the {case.steps.noun}.",
        threshold=f"At least {format_share(UNUSED_GRADIENTS_FRAC)} of the parameters that have gradients.",
        advice="Call a teacher, a reward model or a frozen backbone without gradients, or switch them off for its parameters: "
        "its backward is not computed then, and its activations are freed at once. Leave it as it is if you update these "
        "parameters yourself, or seldom.",
        change="with torch.no_grad():\n    targets = teacher(batch)  # or: teacher.requires_grad_(False)",
        fix="no gradients for what is not trained",
        evidence=(STEPS_PAGE,),
        assumption="the backward takes as long for each parameter",
        what_if=shorten_phases(case, ("backward",), share),
        tier="R",
        gain_range=(0.4, 1.1),
    )


RULE = Rule("needless_grad", knob="grad", effort="flag", judge=_judge)
