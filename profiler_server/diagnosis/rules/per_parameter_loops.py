"""Python loops over parameters outside of the update: norms, averages of weights, zeroing."""

from __future__ import annotations

from profiler_server.diagnosis.limits import MIN_GAIN_FRAC
from profiler_server.diagnosis.seen import TIMELINE, look_for, predict, say_examples
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | Abstention | None:
    seen = look_for(case, "per_parameter_loops")
    if seen is None or isinstance(seen, Abstention):
        return seen
    if seen.gain is None or seen.gain.frac < MIN_GAIN_FRAC:
        return None
    finding = Finding(
        title="A loop handles parameters one by one",
        measured=f"{seen.count:.0f} small operators per step in loops over tensors{say_examples(seen)}, outside of the update; they take "
        f"{format_duration(seen.spent_ns)}.",
        threshold=f"Without it the replayed step is at least {format_share(MIN_GAIN_FRAC)} shorter.",
        advice="Use the form for many tensors: clip_grad_norm_(…, foreach=True), torch._foreach_lerp_ or AveragedModel for averages of "
        "weights, zero_grad(set_to_none=True) for gradients.",
        change="torch._foreach_lerp_(averages, parameters, 1 - decay)  # was: a loop with one call per parameter",
        fix="one call for all parameters",
        evidence=(TIMELINE,),
    )
    return predict(case, finding, "loops", seen.gain)


RULE = Rule("per_parameter_loops", knob="loops", effort="code", judge=_judge, muted_when_input_bound=True)
