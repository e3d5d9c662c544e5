"""Operators that make the host wait for the device: `.item()`, `.cpu()`, a tensor in an `if`."""

from __future__ import annotations

from profiler_server.diagnosis.limits import MIN_GAIN_FRAC
from profiler_server.diagnosis.seen import TIMELINE, look_for, predict, say_examples
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | Abstention | None:
    seen = look_for(case, "sync_points")
    if seen is None or isinstance(seen, Abstention):
        return seen
    if seen.gain is None or seen.gain.frac < MIN_GAIN_FRAC:
        return None
    finding = Finding(
        title="The host waits for results of the device",
        measured=f"{seen.count:.1f} times per step the host waits for a value{say_examples(seen)}, {format_duration(seen.spent_ns)} in all; "
        f"the device then idles {format_duration(seen.figures['idle_ns'])} of the step until new work arrives.",
        threshold=f"Without it the replayed step is at least {format_share(MIN_GAIN_FRAC)} shorter.",
        advice="The wait itself costs nothing while the device works; what counts is that the device has nothing to do afterwards. "
        "Keep such values on the device, add them up there, and read them every hundred steps; copy results with "
        "non_blocking=True; use torch.where in place of an if on a tensor and of indexing by a mask.",
        change="total += loss.detach()  # was: total += loss.item()\nif step % 100 == 0:\n    print(total.item() / 100)\n    total.zero_()",
        fix="no waiting inside of the step",
        evidence=(TIMELINE,),
    )
    return predict(case, finding, "waits", seen.gain)


RULE = Rule("sync_points", knob="sync", effort="code", judge=_judge, muted_when_input_bound=True)
