"""Putting samples together into a batch is what the loader spends its time on."""

from __future__ import annotations

from profiler_server.diagnosis.named import blame_function, find_in_stage, say_functions
from profiler_server.diagnosis.what_if import scale_stages
from profiler_server.diagnosis.wording import STAGES_PAGE, say_input_limit, say_wait
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_duration, format_number_of, format_share


def _judge(case: Case) -> Finding | None:
    batches = case.loading.batches
    if batches is None or not case.loading.is_input_bound or case.loading.bottleneck.stage != "collate":
        return None
    share = batches.share("collate")
    collate_ns = float(batches.stages_ns["collate"].mean())
    part = find_in_stage(case, "collate")
    found = Finding(
        title="Collating batches is slow",
        measured=f"{say_wait(case)} Collating takes {format_duration(collate_ns)} per batch of "
        f"{format_number_of(round(batches.samples), 'sample')}, {format_share(share)} of the loader's work.{say_functions(part, 'collating')}",
        threshold=f"{say_input_limit(case)}, and collating is the longest stage.",
        advice="Stacking tensors is a copy and should cost next to nothing: return tensors of one shape from the "
        "dataset and stack them, without a Python loop over elements.",
        change="def collate(samples):\n    inputs, targets = zip(*samples)\n"
        "    return torch.stack(inputs), torch.as_tensor(targets)",
        fix="collating with torch.stack",
        evidence=(STAGES_PAGE,),
        assumption="collating took a tenth of its time",
        tier="M",
        what_if=scale_stages(case, batches, ("collate",), 0.1),
        gain_range=(0.6, 1.1),
    )
    return blame_function(case, batches, found, part)


RULE = Rule("slow_collate", knob="collate", effort="code", judge=_judge, stage="collate")
