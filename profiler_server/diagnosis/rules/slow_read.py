"""Reading samples is what the loader spends its time on."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_server.diagnosis.named import blame_function, find_in_stage, say_functions
from profiler_server.diagnosis.what_if import scale_stages
from profiler_server.diagnosis.wording import STAGES_PAGE, say_input_limit, say_wait
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_duration, format_number_of, format_share


@dataclass(frozen=True)
class _Remedy:
    """What to do about reading: in words and in code, and what the words follow."""

    seen: str
    advice: str
    change: str


_FROM_STORAGE = _Remedy(
    seen="",
    advice="Read fewer, larger pieces: pack small files into shards, move the data to a local disk, or keep it in memory.",
    change="# pack samples once, then read whole shards in order, for instance:\n"
    "with tarfile.open('shard-000.tar', 'w') as shard:\n    for path in paths[:1000]:\n        shard.add(path)",
)


def _choose_remedy(case: Case) -> _Remedy:
    reading = case.loading.reading
    if reading is None or not case.loading.computes_to_read:
        return _FROM_STORAGE
    files = " and opens no file" if reading.files == 0 else ""
    return _Remedy(
        seen=f" It keeps a processor busy {format_share(case.loading.read_need)} of that time{files}: it computes, rather "
        "than waits for storage.",
        advice="Prepare what every epoch needs once, before training, as arrays or tensors: parsed, decoded, in whole columns. "
        "Then a sample is an index into them, and not work on Python objects.",
        change="self.inputs, self.targets = prepare(rows)  # once, in __init__: whole columns as tensors\n\n"
        "def __getitem__(self, index):\n    return self.inputs[index], self.targets[index]",
    )


def _judge(case: Case) -> Finding | None:
    batches = case.loading.batches
    if batches is None or not case.loading.is_input_bound or case.loading.bottleneck.stage != "read":
        return None
    if case.loading.is_slow_for_few:
        return None  # only some samples take long
    if case.loading.is_in_memory and case.loading.loader is not None and case.loading.loader.style == "map":
        return None  # what is in memory already is not read faster from shards
    share = batches.share("read")
    read_ns = float(batches.stages_ns["read"].mean())
    part, remedy = find_in_stage(case, "read"), _choose_remedy(case)
    found = Finding(
        title="Reading samples is slow",
        measured=f"{say_wait(case)} Reading takes {format_duration(read_ns)} per batch of {format_number_of(round(batches.samples), 'sample')}, "
        f"{format_share(share)} of the loader's work.{remedy.seen}{say_functions(part, 'reading')}",
        threshold=f"{say_input_limit(case)}, and reading is the longest stage.",
        advice=remedy.advice,
        change=remedy.change,
        fix="reading in half of the time",
        evidence=(STAGES_PAGE,),
        assumption="reading took half as long",
        tier="M",
        what_if=scale_stages(case, batches, ("read",), 0.5),
        gain_range=(0.85, 1.1),
    )
    return blame_function(case, batches, found, part)


RULE = Rule("slow_read", knob="sample_work", effort="format", judge=_judge, stage="read")
