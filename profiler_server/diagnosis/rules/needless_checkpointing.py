"""The backward computes forwards again to save memory that is not short."""

from __future__ import annotations

from profiler_server.diagnosis.limits import MIN_GAIN_FRAC, SPARE_MEMORY_FRAC
from profiler_server.diagnosis.seen import TIMELINE, look_for, predict
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | Abstention | None:
    seen = look_for(case, "needless_checkpointing", "checkpointing")
    if seen is None or isinstance(seen, Abstention):
        return seen
    peak = case.device.memory_peak_frac
    if peak is None:
        return Abstention("needless_checkpointing", "how much memory the device held", "Record or trace with memory.")
    if 1.0 - peak < SPARE_MEMORY_FRAC or seen.gain is None:
        return None
    finding = Finding(
        title="Activations are computed twice although memory is free",
        measured=f"{seen.count:.0f} checkpointed blocks per step, {format_duration(seen.spent_ns)} of backward with their forwards; "
        f"at most {format_share(peak)} of the device's memory was held.",
        threshold=f"At least {format_share(SPARE_MEMORY_FRAC)} of the memory is never held, and without the second forwards the "
        f"replayed step is at least {format_share(MIN_GAIN_FRAC)} shorter.",
        advice="Checkpoint fewer blocks, or none: keeping the results of layers takes memory that is free here. Watch the peak.",
        change="use_checkpoint = index % 2 == 0  # every other block; then none",
        fix="no checkpointing",
        evidence=(TIMELINE,),
    )
    return predict(case, finding, "kernels", seen.gain)


RULE = Rule(
    "needless_checkpointing", knob="checkpointing", effort="argument", judge=_judge, muted_when_input_bound=True
)
