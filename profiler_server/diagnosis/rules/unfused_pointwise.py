"""Chains of elementwise kernels that a compiler would join."""

from __future__ import annotations

from profiler_server.diagnosis.limits import MIN_GAIN_FRAC
from profiler_server.diagnosis.seen import TIMELINE, look_for, predict, say_examples
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | Abstention | None:
    seen = look_for(case, "unfused_pointwise")
    if seen is None or isinstance(seen, Abstention):
        return seen
    if seen.gain is None or seen.gain.frac < MIN_GAIN_FRAC:
        return None
    finding = Finding(
        title="Elementwise kernels run one by one",
        measured=f"{seen.count:.0f} elementwise kernels per step follow each other in chains of three and more{say_examples(seen)}; they take "
        f"{format_duration(seen.spent_ns)}, {format_share(seen.figures['share'])} of the time of all kernels.",
        threshold=f"Without it the replayed step is at least {format_share(MIN_GAIN_FRAC)} shorter.",
        advice="Each reads and writes all of its memory. torch.compile joins such chains into one kernel, without CUDA graphs too; "
        "or use the fused form of the operator (fused norms, activations and losses).",
        change="model = torch.compile(model)",
        fix="torch.compile",
        evidence=(TIMELINE,),
    )
    return predict(case, finding, "kernels", seen.gain)


RULE = Rule("unfused_pointwise", knob="launch", effort="flag", judge=_judge, muted_when_input_bound=True)
