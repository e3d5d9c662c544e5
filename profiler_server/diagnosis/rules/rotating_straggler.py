"""In each step another rank is the slowest, and all others wait for it."""

from __future__ import annotations

from profiler_server.analysis.results import Evidence
from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import Finding, Rule
from profiler_server.diagnosis.limits import ROTATING_FRAC
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    judged = case.ranks.judgement
    if judged.rotation is None:
        return None
    lost_ns = min(judged.rotation.waited_ns, case.steps.phases_ns["communication"])
    share = lost_ns / case.steps.mean_ns
    if share < ROTATING_FRAC:
        return None
    most = max((judged.last_frac or {}).values(), default=0.0)
    return Finding(
        title="The ranks take turns at being the slowest",
        measured=f"In each step the ranks wait for the one that comes last, {format_duration(lost_ns)} on average "
        f"({format_share(share)}); no rank is the last in more than {format_share(most)} of the steps.",
        threshold=f"At least {format_share(ROTATING_FRAC)} of the step, and the ranks come last about equally often.",
        advice="The work of a step differs from rank to rank: sequences of unequal length, images of unequal size. Give all "
        "ranks samples of like size in the same step (sort into buckets by length), or bound a batch by its tokens.",
        change="sampler = DistributedBucketSampler(lengths, num_replicas=world_size, rank=rank)  # like lengths in a step",
        fix="equal work on all ranks",
        evidence=(Evidence("ranks", "", "All ranks side by side"),),
        assumption="half of the difference went away",
        what_if=shorten_step(case, "communication", lost_ns, 0.5),
        gain_range=(0.5, 1.8),
    )


RULE = Rule("rotating_straggler", knob="straggler", effort="code", judge=_judge)
