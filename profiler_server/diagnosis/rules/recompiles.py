"""torch.compile compiles the same function again and again."""

from __future__ import annotations

from collector.format.steps import read_integers
from profiler_server.diagnosis.case import STEPS_PAGE, Case, Finding, Rule
from profiler_server.format import format_duration, format_number_of, format_share

_LEAST, _SHARE = 2, 0.02


def _judge(case: Case) -> Finding | None:
    again = case.compiles.get("recompile")
    if again is None or again.count < _LEAST:
        return None
    share = again.duration_ns / max(float(read_integers(case.train, "duration_ns").sum()), 1.0)
    if share < _SHARE:
        return None
    reason = f" The most frequent reason: {again.reason}." if again.reason else ""
    return Finding(
        title="Functions are compiled again during training",
        measured=f"{format_number_of(again.count, 'recompilation')} took {format_duration(again.duration_ns)} in all "
        f"({format_share(share)} of the steps' time), most often of {again.function}.{reason}",
        threshold=f"{_LEAST} recompilations or more that take over {format_share(_SHARE)} of the steps' time.",
        advice="Keep what the guard checks the same from step to step: pad batches to a few fixed sizes or drop the last "
        "one, mark sizes that change as dynamic, and pass numbers that change as tensors.",
        change="DataLoader(dataset, drop_last=True)\n"
        "torch._dynamo.mark_dynamic(batch, 0)  # or torch.compile(model, dynamic=True)",
        fix="each function compiled once",
        evidence=(STEPS_PAGE,),
        severity="medium",
    )


RULE = Rule("recompiles", knob="compile", effort="code", judge=_judge)
