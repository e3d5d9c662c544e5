"""Settings that affect much of the step, for which no rule can promise a step."""

from __future__ import annotations

from profiler_server.diagnosis.knobs import Change, list_changes
from profiler_server.diagnosis.limits.facts import LARGE_PART_FRAC
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.words.phrases import OPERATORS_PAGE, describe


def _judge_worth_trying(case: Case) -> tuple[Finding, ...]:
    """Settings that govern much of the step and are not at the value that is usually best, and no rule predicts."""
    found = [each for each in list_changes(case) if each.look and each.bound_frac >= LARGE_PART_FRAC]
    first = {each.knob: each for each in reversed(found)}
    return tuple(_describe(case, each) for each in found if first[each.knob] is each)


def _describe(case: Case, change: Change) -> Finding:
    text = describe(
        case,
        f"worth_trying.{change.look}",
        label=change.label,
        code=change.code,
        share=change.bound_frac,
        wait=case.steps.share("data_wait"),
        kinds=case.steps.kinds,
        subnormal=case.manifest.subnormal_frac,
        by=" (`stepscope run --try`)" if change.change and not case.is_imported else "",
    )
    least_ns = max(1.0 - change.bound_frac, 0.0) * case.steps.mean_ns
    subject = change.label.partition("=")[0].strip()
    return Finding(text, evidence=(OPERATORS_PAGE,), severity="low", subject=subject, least_step_ns=least_ns)


RULES = (Rule("worth_trying", "trial", "flag", _judge_worth_trying),)
