"""Convolutions turn their images into another layout and back."""

from __future__ import annotations

from profiler_server.diagnosis.limits import MIN_GAIN_FRAC
from profiler_server.diagnosis.seen import TIMELINE, look_for, predict
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | Abstention | None:
    seen = look_for(case, "channels_last", "layout_copies")
    if seen is None or isinstance(seen, Abstention):
        return seen
    if seen.gain is None or seen.gain.frac < MIN_GAIN_FRAC:
        return None
    finding = Finding(
        title="Convolutions change the layout of their images",
        measured=f"Kernels that only turn one layout into the other take {format_duration(seen.spent_ns)} of the step, "
        f"{format_share(seen.figures['share'])} of the time of all kernels.",
        threshold=f"Without it the replayed step is at least {format_share(MIN_GAIN_FRAC)} shorter.",
        advice="Keep model and images in channels_last: then the layout is changed once, and not around each convolution.",
        change="model = model.to(memory_format=torch.channels_last)\nimages = images.to(memory_format=torch.channels_last)",
        fix="channels_last",
        evidence=(TIMELINE,),
    )
    return predict(case, finding, "kernels", seen.gain)


RULE = Rule("channels_last", knob="layout", effort="code", judge=_judge, muted_when_input_bound=True)
