"""Samples are in memory already, and fetching them one by one is what takes the time."""

from __future__ import annotations

from dataclasses import replace

from collector.estimating.model import Job, LoopModel
from profiler_server.diagnosis.limits import IN_MEMORY_NS
from profiler_server.diagnosis.what_if import also, feed, shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE, say_input_limit, say_wait
from profiler_server.facts.case import Case, Finding, Rule, WhatIf
from profiler_server.facts.steps import COMPUTING
from profiler_server.format import format_duration

_LEFT = 0.06
"""Part of fetching one by one that an index operation on the whole batch takes; 0.04 to 0.09 in five measured programs."""

_CACHES_FRAC = 0.15
"""Part of the computing that goes too where the training thread fetches: thousands of small tensors pass through its
caches. 6, 25 and 28 % in three measured programs."""


def _index_whole_batches(model: LoopModel) -> LoopModel:
    batches = tuple(Job(job.wall_ns * _LEFT, job.cores) for job in model.batches)
    return replace(model, batches=batches, workers=0)


def _judge(case: Case) -> Finding | None:
    loader = case.loading.loader
    if loader is None or not case.loading.is_input_bound or not case.loading.takes_whole_batches:
        return None
    samples = case.loading.batch_samples
    return Finding(
        title="Samples in memory are fetched one by one",
        measured=f"{say_wait(case)} A sample takes {format_duration(case.loading.batch_ns / samples)}, a batch of "
        f"{samples:.0f} takes {format_duration(case.loading.batch_ns)}.",
        threshold=f"{say_input_limit(case)}, and a sample takes less than {format_duration(IN_MEMORY_NS)}.",
        advice="Fetch the whole batch with one index operation; worker processes would only add the cost of moving it.",
        change="sampler = BatchSampler(RandomSampler(dataset), batch_size="
        f"{loader.batch_size or 32}, drop_last=False)\n"
        "loader = DataLoader(dataset, sampler=sampler, batch_size=None)  # dataset[list_of_indices]",
        fix="fetching whole batches by index",
        evidence=(STEPS_PAGE,),
        what_if=_find_what_if(case),
        gain_range=(0.7, 1.1),
    )


def _find_what_if(case: Case) -> WhatIf:
    fetching = feed(case, _index_whole_batches)
    if case.device.is_used or case.loading.loop.model.workers:
        return fetching
    computing_ns = sum(case.steps.phases_ns[phase] for phase in COMPUTING)
    return also(fetching, shorten_step(case, "caches", _CACHES_FRAC * computing_ns, 1.0))


RULE = Rule("in_memory_fetch", knob="workers", effort="code", judge=_judge, stage="loader")
