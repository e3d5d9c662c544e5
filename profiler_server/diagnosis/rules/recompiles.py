"""torch.compile compiles the same function again and again."""

from __future__ import annotations

from profiler_server.diagnosis.limits import MIN_RECOMPILES, RECOMPILE_FRAC
from profiler_server.diagnosis.what_if import measure_stalls, shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.steps import read_column
from profiler_server.format import format_duration, format_number_of, format_share


def _judge(case: Case) -> Finding | None:
    again = case.steps.compiles.get("recompile")
    if again is None or again.count < MIN_RECOMPILES:
        return None
    share = again.duration_ns / max(float(read_column(case.steps.rows, "duration_ns").sum()), 1.0)
    if share < RECOMPILE_FRAC:
        return None
    stall = measure_stalls(
        case, case.steps.interruptions.of_kind("recompile"), read_column(case.steps.rows, "duration_ns")
    )
    reason = f" The most frequent reason: {again.reason}." if again.reason else ""
    return Finding(
        title="Functions are compiled again during training",
        measured=f"{format_number_of(again.count, 'recompilation')} took {format_duration(again.duration_ns)} in all "
        f"({format_share(share)} of the steps' time), most often of {again.function}.{reason}",
        threshold=f"{MIN_RECOMPILES} recompilations or more that take at least {format_share(RECOMPILE_FRAC)} of the steps' time.",
        advice="Keep what the compiler checks the same from step to step: pad batches to a few fixed sizes or drop the last "
        "one, mark sizes that change as dynamic, and pass numbers that change as tensors.",
        change="DataLoader(dataset, drop_last=True)\n"
        "torch._dynamo.mark_dynamic(batch, 0)  # or torch.compile(model, dynamic=True)",
        fix="each function compiled once",
        evidence=(STEPS_PAGE,),
        severity="medium",
        what_if=shorten_step(case, "stalls", stall * case.steps.mean_ns, 1.0) if stall else None,
        tier="A",
        gain_range=(0.7, 1.05),  # a dynamic shape may run slower, and padding computes more
    )


RULE = Rule("recompiles", knob="stalls", effort="code", judge=_judge)
