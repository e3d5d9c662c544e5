"""One stage of a pipeline has more work than the others, which wait for it."""

from __future__ import annotations

from profiler_server.diagnosis.what_if import save_each_step
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.job import BEHIND_FRAC, HeavyStage
from profiler_server.facts.results import Evidence
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    heavy = case.ranks.verdict
    if not isinstance(heavy, HeavyStage):
        return None
    part = "backward" if case.manifest.rank in heavy.culprits else "communication"
    return Finding(
        title=f"Stage {heavy.stage} of the pipeline has more work than the others",
        measured=f"It computes {format_duration(heavy.own_ns)} a step, the other stages {format_duration(heavy.others_ns)} "
        "in the mean.",
        threshold=f"With the same work in all stages the step is shorter by {format_share(BEHIND_FRAC)} or more.",
        advice="Move layers to the other stages. The last stage holds the loss and the output layer, the first the "
        "embedding: give them fewer layers than the others. The prediction replays every operation with each stage "
        "scaled to the mean work of all.",
        change="# Megatron-LM: layers of the first and the last stage; the others share the rest\n"
        "--decoder-first-pipeline-num-layers N --decoder-last-pipeline-num-layers M",
        fix="the same work in all stages",
        evidence=(Evidence("ranks", "", "All ranks side by side"),),
        severity="medium",
        tier="A",
        what_if=save_each_step(part, heavy.gain_ns),
        gain_range=(0.5, 1.05),
    )


RULES = (Rule("uneven_stages", knob="stages", effort="code", judge=_judge),)
