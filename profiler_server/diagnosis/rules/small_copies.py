"""Many small copies to the device in each step."""

from __future__ import annotations

from profiler_server.diagnosis.limits import MIN_GAIN_FRAC
from profiler_server.diagnosis.seen import TIMELINE, look_for, predict, say_examples
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_bytes, format_duration, format_share


def _judge(case: Case) -> Finding | Abstention | None:
    seen = look_for(case, "small_copies")
    if seen is None or isinstance(seen, Abstention):
        return seen
    if seen.gain is None or seen.gain.frac < MIN_GAIN_FRAC:
        return None
    finding = Finding(
        title="Many small copies to the device",
        measured=f"{seen.count:.0f} copies per step of at most 64 KiB, {format_bytes(seen.figures['size_bytes'])} in all{say_examples(seen)}; "
        f"they run for {format_duration(seen.spent_ns)}, and each has a call of its own.",
        threshold=f"Without it the replayed step is at least {format_share(MIN_GAIN_FRAC)} shorter.",
        advice="Put small tensors together on the host and copy them once, or make them on the device. Numbers that go into an "
        "operator need no tensor at all.",
        change="packed = torch.cat([t.flatten() for t in small]).pin_memory().to(device, non_blocking=True)\n"
        "parts = packed.split([t.numel() for t in small])",
        fix="one copy for all",
        evidence=(TIMELINE,),
    )
    return predict(case, finding, "copies", seen.gain)


RULE = Rule("small_copies", knob="copy_count", effort="code", judge=_judge, muted_when_input_bound=True)
