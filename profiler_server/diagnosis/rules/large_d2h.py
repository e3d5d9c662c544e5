"""Large results are brought to the host in each step."""

from __future__ import annotations

from profiler_server.diagnosis.limits import MIN_GAIN_FRAC
from profiler_server.diagnosis.seen import TIMELINE, look_for, predict, say_examples
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_bytes, format_duration, format_share


def _judge(case: Case) -> Finding | Abstention | None:
    seen = look_for(case, "large_d2h")
    if seen is None or isinstance(seen, Abstention):
        return seen
    if seen.gain is None or seen.gain.frac < MIN_GAIN_FRAC:
        return None
    finding = Finding(
        title="Large results are copied to the host in each step",
        measured=f"{seen.count:.1f} copies per step of 1 MiB and more, {format_bytes(seen.figures['size_bytes'])} in all{say_examples(seen)}, "
        f"take {format_duration(seen.spent_ns)}, and the host waits for them.",
        threshold=f"Without it the replayed step is at least {format_share(MIN_GAIN_FRAC)} shorter.",
        advice="Compute what you need of them on the device (a mean, a top-k, a mask) and copy that; or copy into pinned memory "
        "with non_blocking=True and read it a step later.",
        change='scores = logits.argmax(-1).to("cpu", non_blocking=True)  # was: logits.cpu().argmax(-1)',
        fix="no large copies to the host",
        evidence=(TIMELINE,),
    )
    return predict(case, finding, "copies", seen.gain)


RULE = Rule("large_d2h", knob="results", effort="code", judge=_judge, muted_when_input_bound=True)
