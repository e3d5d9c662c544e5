"""Tensors made on the host and then copied, which the device could make."""

from __future__ import annotations

from profiler_server.diagnosis.limits import MIN_GAIN_FRAC
from profiler_server.diagnosis.seen import TIMELINE, look_for, predict, say_examples
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_share


def _judge(case: Case) -> Finding | Abstention | None:
    seen = look_for(case, "built_on_cpu")
    if seen is None or isinstance(seen, Abstention):
        return seen
    if seen.gain is None or seen.gain.frac < MIN_GAIN_FRAC:
        return None
    finding = Finding(
        title="Tensors are made on the host and copied",
        measured=f"{seen.count:.1f} times per step a tensor is made on the host{say_examples(seen)} and copied to the device at once.",
        threshold=f"Without it the replayed step is at least {format_share(MIN_GAIN_FRAC)} shorter.",
        advice="Give the device to the function that makes the tensor: neither the copy nor its wait is needed then.",
        change="torch.arange(n, device=x.device)  # was: torch.arange(n).to(x.device)",
        fix="tensors made on the device",
        evidence=(TIMELINE,),
    )
    return predict(case, finding, "copies", seen.gain)


RULE = Rule("built_on_cpu", knob="built", effort="code", judge=_judge, muted_when_input_bound=True)
