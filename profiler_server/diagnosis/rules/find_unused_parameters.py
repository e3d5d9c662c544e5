"""DistributedDataParallel looks for unused parameters in every step, and there are none."""

from __future__ import annotations

from profiler_server.diagnosis.limits import MIN_STEPS
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_duration


def _judge(case: Case) -> Finding | None:
    ddp = case.ranks.ddp
    if ddp is None or not ddp.finds_unused or ddp.unused_bytes != 0 or ddp.backwards < MIN_STEPS:
        return None
    if case.ranks.world_size < 2:
        return None
    return Finding(
        title="Unused parameters are looked for, and there are none",
        measured=f"find_unused_parameters=True, and every parameter got a gradient; the forward takes "
        f"{format_duration(case.steps.phases_ns['forward'])}, in which the graph is searched.",
        threshold="The search is on, and found none when its result was last read.",
        advice="In every forward it goes through the whole graph, and tells the other ranks what it found. Without it the "
        "step saves that, which is little for a large model. It is needed where a rank may skip a part of the model.",
        change="model = DistributedDataParallel(model, find_unused_parameters=False)",
        fix="find_unused_parameters=False",
        evidence=(STEPS_PAGE,),
    )


RULE = Rule("find_unused_parameters", knob="find_unused", effort="flag", judge=_judge)
