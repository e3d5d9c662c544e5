"""Reading samples is what the loader spends its time on."""

from __future__ import annotations

from profiler_server.diagnosis.case import STAGES_PAGE, Case, Finding, Rule, say_wait, scale_stages
from profiler_server.format import format_duration, format_share

_SHARE = 0.35


def _judge(case: Case) -> Finding | None:
    batches = case.batches
    if batches is None or not case.is_input_bound or case.bottleneck.stage != "read":
        return None
    share = batches.share("read")
    if share <= _SHARE:
        return None
    read_ns = float(batches.stages_ns["read"].mean())
    return Finding(
        title="Reading samples is slow",
        measured=f"{say_wait(case)} Reading takes {format_duration(read_ns)} per batch of {batches.samples:.0f} samples, "
        f"{format_share(share)} of the loader's work.",
        threshold=f"Input-bound, reading is the longest stage and over {format_share(_SHARE)} of the work.",
        advice="Read fewer, larger pieces: pack small files into shards, move the data to a local disk, or keep it in "
        "memory. The prediction is for reading in half of the time, the range from free to three quarters.",
        change="# pack samples once, then read whole shards in order, for instance:\n"
        "with tarfile.open('shard-000.tar', 'w') as shard:\n    for path in paths[:1000]:\n        shard.add(path)",
        fix="reading twice as fast",
        evidence=(STAGES_PAGE,),
        what_if=scale_stages(batches, ("read",), 0.5),
        gain_range=(0.5, 1.6),
    )


RULE = Rule("slow_read", knob="sample_work", effort="format", judge=_judge)
