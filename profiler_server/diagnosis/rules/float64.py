"""Parameters are trained in double precision: twice the bytes, half the vector width, and on most GPUs far less."""

from __future__ import annotations

from collections.abc import Mapping

from profiler_server.diagnosis.limits import FLOAT64_FRAC, FLOAT64_SAVED_FRAC
from profiler_server.diagnosis.what_if import shorten_phases
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.steps import COMPUTING
from profiler_server.format import format_count, format_duration, format_share


def _judge(case: Case) -> Finding | None:
    double, whole = _count_parameters(case)
    if not whole or double < FLOAT64_FRAC * whole:
        return None
    spent = sum(case.steps.phases_ns[name] for name in COMPUTING)
    slow = case.steps.slow_convolutions
    saved = FLOAT64_SAVED_FRAC + (slow.saved_frac - FLOAT64_SAVED_FRAC) * slow.share_frac
    assumed = "operators in float32 took half as long"
    return Finding(
        title="The model is trained in float64",
        measured=f"{format_count(double)} of {format_count(whole)} parameters are float64; forward, backward and update take "
        f"{format_duration(spent)}, {format_share(case.steps.share(*COMPUTING))} of the step.",
        threshold=f"At least {format_share(FLOAT64_FRAC)} of the trained parameters are float64.",
        advice="NumPy makes float64 unless told otherwise, and a model that gets such data, or torch.set_default_dtype, "
        "follows. float32 halves the bytes and doubles what a vector instruction does; it is enough for training.",
        change="model = model.float()\ndata = torch.as_tensor(array, dtype=torch.float32)",
        fix="float32",
        evidence=(STEPS_PAGE,),
        assumption=f"{assumed}, and convolutions, which no library computes in float64, {format_share(1.0 - slow.saved_frac)} as long"
        if slow.share_frac
        else assumed,
        what_if=shorten_phases(case, COMPUTING, saved),
        tier="A",
        gain_range=(0.5, 1.2),
    )


def _count_parameters(case: Case) -> tuple[int, int]:
    """Return how many trained parameters are float64, and how many there are; 0, 0 where that was not recorded."""
    double = whole = 0
    optimizers = case.facts.get("optimizers")
    for entry in optimizers if isinstance(optimizers, list) else ():
        dtypes = entry.get("dtypes") if isinstance(entry, Mapping) else None
        for name, count in dtypes.items() if isinstance(dtypes, Mapping) else ():
            if isinstance(count, int) and not isinstance(count, bool):
                whole += max(count, 0)
                double += max(count, 0) if name == "float64" else 0
    return double, whole


RULE = Rule("float64", knob="precision", effort="code", judge=_judge, muted_when_input_bound=True)
