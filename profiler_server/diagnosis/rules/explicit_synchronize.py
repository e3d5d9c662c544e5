"""`torch.cuda.synchronize()` in the training loop."""

from __future__ import annotations

from profiler_server.diagnosis.limits import MIN_GAIN_FRAC
from profiler_server.diagnosis.seen import TIMELINE, look_for, predict, say_examples
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | Abstention | None:
    seen = look_for(case, "explicit_synchronize")
    if seen is None or isinstance(seen, Abstention):
        return seen
    if seen.gain is None or seen.gain.frac < MIN_GAIN_FRAC:
        return None
    finding = Finding(
        title="The loop synchronises with the device",
        measured=f"{seen.count:.1f} times per step the loop calls a synchronisation of its own{say_examples(seen)}; the device then idles "
        f"{format_duration(seen.figures['idle_ns'])} of the step until new work arrives.",
        threshold=f"Without it the replayed step is at least {format_share(MIN_GAIN_FRAC)} shorter.",
        advice="Remove the calls, or keep them for the steps that are timed: torch.cuda.Event measures without stopping the host.",
        change="# torch.cuda.synchronize()  # only around steps that are timed",
        fix="no explicit synchronisation",
        evidence=(TIMELINE,),
    )
    return predict(case, finding, "waits", seen.gain)


RULE = Rule("explicit_synchronize", knob="explicit_sync", effort="code", judge=_judge, muted_when_input_bound=True)
