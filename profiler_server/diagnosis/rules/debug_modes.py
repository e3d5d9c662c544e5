"""A mode for finding errors is left on: anomaly detection, or algorithms that must be deterministic."""

from __future__ import annotations

from dataclasses import dataclass, replace

from profiler_server.diagnosis.limits import MIN_GAIN_FRAC
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.steps import SampledShare
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
    found = Finding(
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
    cost = _measure_anomaly(case)
    if cost is None:
        return replace(found, advice=f"{found.advice} {_UNSEEN}")
    said = replace(found, measured=f"{found.measured} {cost.sentence}")
    if cost.least_ns < _LEAST_PREDICTED * MIN_GAIN_FRAC * case.steps.mean_ns:
        return replace(said, advice=f"{said.advice} {_SMALL}")
    return replace(
        said,
        what_if=shorten_step(case, "anomaly", cost.most_ns, cost.usual_ns / cost.most_ns),
        gain_range=(cost.least_ns / cost.usual_ns, cost.most_ns / cost.usual_ns),
        tier="A" if cost.is_measured else "R",
    )


_UNSEEN = (
    "What that costs depends on the number of operators, and this recording shows neither them nor Python stacks: record "
    'with Profiler(window="auto") for a range.'
)
_SMALL = "What is known of its cost is too small a part of the step for a prediction."
_LEAST_PREDICTED = 1.5
"""The least that it costs is so many times what a change must save: noise makes the bar higher."""


@dataclass(frozen=True)
class _Cost:
    """What anomaly detection takes of a step: at the least, usually, and at most."""

    least_ns: float
    usual_ns: float
    most_ns: float
    sentence: str
    is_measured: bool


def _measure_anomaly(case: Case) -> _Cost | None:
    """Add up tracebacks and checks: sampled and recorded where they were, tracebacks else by the number of operators."""
    forward_ns, backward_ns = case.steps.phases_ns["forward"], case.steps.phases_ns["backward"]
    work = case.anomaly
    checks_ns = min(work.checks_ns if work is not None else 0.0, backward_ns)
    seen = case.stacks.tracebacks if case.stacks is not None else None
    if seen is not None:
        tracebacks_ns = [forward_ns * share for share in _bound(seen)]
        said = f"Keeping tracebacks takes {format_share(seen.share_frac)} of the forward ({seen.samples:,} samples)"
    elif work is not None:
        tracebacks_ns = [min(work.nodes * each_ns, _MOST_OF_FORWARD * forward_ns) for each_ns in _TRACEBACK_NS]
        low, _, high = tracebacks_ns
        said = (
            f"A step keeps {work.nodes:,.0f} tracebacks, of {format_duration(_TRACEBACK_NS[0])} to "
            f"{format_duration(_TRACEBACK_NS[-1])} each by how deep the code is: {format_duration(low)} to {format_duration(high)}"
        )
    else:
        return None
    checked = f"; looking for NaN takes {format_duration(checks_ns)} of a detailed step" if checks_ns else ""
    # Checks are recorded with the cost of recording them, which may be half of it.
    low, usual, high = (
        time_ns + part * checks_ns for time_ns, part in zip(tracebacks_ns, (0.4, 0.8, 1.1), strict=True)
    )
    if usual <= 0:
        return None
    return _Cost(low, usual, high, f"{said}{checked}.", seen is not None)


def _bound(seen: SampledShare) -> tuple[float, float, float]:
    """Return the least, usual and largest share of a phase that goes with tracebacks, by how many samples lie in them.

    Keeping and freeing them costs the other samples: in two measured programs the forward without them took 6 % of what it
    took with them, where the samples left 16 and 26 %.
    """
    return 0.8 * seen.low_frac, 1.0 - 0.4 * (1.0 - seen.share_frac), 1.0 - 0.15 * (1.0 - seen.high_frac)


_TRACEBACK_NS = (30_000.0, 55_000.0, 190_000.0)
"""What a traceback takes, as measured: of five frames, of ten, and of forty in a large framework."""
_MOST_OF_FORWARD = 0.9


def _find_deterministic() -> Finding:
    return Finding(
        title="Only deterministic algorithms are allowed",
        measured="torch.use_deterministic_algorithms was on while steps ran.",
        threshold="Deterministic algorithms on an accelerator.",
        advice="Scatter, index and some convolution kernels have slower deterministic versions. If runs need not be equal "
        "bit by bit, switch it off and compare. No range is known beforehand: most kernels are the same in both modes, and "
        "single ones take many times as long.",
        change="torch.use_deterministic_algorithms(False)",
        fix="without deterministic algorithms",
        evidence=(STEPS_PAGE,),
        severity="low",
    )


RULE = Rule("debug_modes", knob="debug", effort="flag", judge=_judge)
