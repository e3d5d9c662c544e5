"""Batches are made wider on the host before they are copied."""

from __future__ import annotations

from profiler_server.diagnosis.limits import MIN_GAIN_FRAC
from profiler_server.diagnosis.seen import TIMELINE, look_for, predict, say_examples
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | Abstention | None:
    seen = look_for(case, "cast_before_copy")
    if seen is None or isinstance(seen, Abstention):
        return seen
    if seen.gain is None or seen.gain.frac < MIN_GAIN_FRAC:
        return None
    finding = Finding(
        title="Batches are cast before they are copied",
        measured=f"{seen.count:.1f} copies per step are of tensors that the host made wider right before{say_examples(seen)}; casting and "
        f"copying take {format_duration(seen.spent_ns)}.",
        threshold=f"Without it the replayed step is at least {format_share(MIN_GAIN_FRAC)} shorter.",
        advice="Copy the bytes as they are and cast on the device: the copy is smaller, and the device casts in no time.",
        change="images = images.to(device, non_blocking=True).float().div_(255)  # was: images.float().div_(255).to(device)",
        fix="casting on the device",
        evidence=(TIMELINE,),
    )
    return predict(case, finding, "copies", seen.gain)


RULE = Rule("cast_before_copy", knob="cast", effort="code", judge=_judge, muted_when_input_bound=True)
