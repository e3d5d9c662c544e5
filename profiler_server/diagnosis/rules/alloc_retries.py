"""The allocator asks the driver for memory while steps run."""

from __future__ import annotations

from profiler_server.diagnosis.limits import MIN_GAIN_FRAC
from profiler_server.diagnosis.seen import TIMELINE, look_for, predict, say_examples
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | Abstention | None:
    seen = look_for(case, "alloc_retries", "allocator_calls")
    if seen is None or isinstance(seen, Abstention):
        return seen
    if seen.gain is None or seen.gain.frac < MIN_GAIN_FRAC:
        return None
    finding = Finding(
        title="Memory is taken from the driver in each step",
        measured=f"{seen.count:.1f} calls per step to take or give back device memory{say_examples(seen)}, {seen.figures['freed']:.1f} of them give it back "
        f"and wait for the device; they take {format_duration(seen.spent_ns)}.",
        threshold=f"Without it the replayed step is at least {format_share(MIN_GAIN_FRAC)} shorter.",
        advice="The cache of the allocator should serve steady steps alone. It does not when memory is nearly full, or when sizes change "
        "from step to step: use a smaller batch, pad to few sizes, or let segments grow.",
        change="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        fix="an allocator that needs no driver",
        evidence=(TIMELINE,),
    )
    return predict(case, finding, "allocator", seen.gain)


RULE = Rule("alloc_retries", knob="allocator", effort="flag", judge=_judge, muted_when_input_bound=True)
