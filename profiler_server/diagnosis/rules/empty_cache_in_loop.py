"""`torch.cuda.empty_cache()` in the training loop."""

from __future__ import annotations

from profiler_server.diagnosis.limits import MIN_GAIN_FRAC
from profiler_server.diagnosis.seen import TIMELINE, look_for, predict
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | Abstention | None:
    seen = look_for(case, "empty_cache_in_loop", "emptied_cache")
    if seen is None or isinstance(seen, Abstention):
        return seen
    if seen.gain is None or seen.gain.frac < MIN_GAIN_FRAC:
        return None
    finding = Finding(
        title="The cache of the allocator is emptied in the loop",
        measured=f"{seen.count:.1f} times per step memory is given back to the driver outside of operators, which takes {format_duration(seen.spent_ns)}; "
        "the memory has to be asked for again.",
        threshold=f"Without it the replayed step is at least {format_share(MIN_GAIN_FRAC)} shorter.",
        advice="Remove torch.cuda.empty_cache() from the loop: it frees nothing that the next step would not take again.",
        change="# torch.cuda.empty_cache()",
        fix="no empty_cache()",
        evidence=(TIMELINE,),
    )
    return predict(case, finding, "allocator", seen.gain)


RULE = Rule("empty_cache_in_loop", knob="empty_cache", effort="code", judge=_judge, muted_when_input_bound=True)
