"""What the training thread does for its own batches: choosing samples, and fetching them one by one."""

from __future__ import annotations

from dataclasses import replace

from collector.estimating.model import Job, LoopModel
from profiler_server.diagnosis.limits.facts import IN_MEMORY_NS, STARVED_WAIT_FRAC
from profiler_server.diagnosis.limits.loading import CACHES_FRAC, INDEXED_LEFT_FRAC, SAMPLER_FRAC
from profiler_server.diagnosis.what_if import also, feed, shorten_step
from profiler_server.diagnosis.wording import DATA_PAGE, say_input_limit, say_wait
from profiler_server.facts.case import Case, Finding, Rule, WhatIf
from profiler_server.facts.results import Abstention
from profiler_server.facts.steps import COMPUTING
from profiler_server.format import format_duration, format_share


def _index_whole_batches(model: LoopModel) -> LoopModel:
    batches = tuple(Job(job.wall_ns * INDEXED_LEFT_FRAC, job.cores) for job in model.batches)
    return replace(model, batches=batches, workers=0)


def _judge_in_memory_fetch(case: Case) -> Finding | None:
    """Samples are in memory already, and fetching them one by one is what takes the time."""
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
        what_if=_find_what_if(case),
        gain_range=(0.7, 1.1),
    )


def _find_what_if(case: Case) -> WhatIf:
    fetching = feed(case, _index_whole_batches)
    if case.device.is_used or case.loading.loop.model.workers:
        return fetching
    computing_ns = sum(case.steps.phases_ns[phase] for phase in COMPUTING)
    return also(fetching, shorten_step(case, "caches", CACHES_FRAC * computing_ns, 1.0))


def _judge_slow_sampler(case: Case) -> Finding | Abstention | None:
    """Choosing the samples of each batch holds the training thread up."""
    loader, sampler, limit = case.loading.loader, case.loading.sampler, case.loading.bottleneck
    if loader is None or loader.style != "map":
        return None
    if sampler is None:
        receives = limit.cause == "receiving" or (limit.cause == "overhead" and not loader.num_workers)
        return _ask_for_it() if case.loading.wait_frac >= STARVED_WAIT_FRAC and receives else None
    if loader.num_workers and limit.cause == "making":
        return None  # they make batches while the sampler runs, and are what the step waits for
    spent_ns = min(sampler.batch_ns * case.loading.loop.fetches, case.data_wait_ns)
    share = spent_ns / case.steps.mean_ns
    if share < SAMPLER_FRAC:
        return None
    return Finding(
        title=f"Choosing samples is slow: {sampler.kind}",
        measured=f"{say_wait(case)} {sampler.kind} takes {format_duration(sampler.batch_ns)} to choose the samples of a "
        f"batch, {format_share(share)} of the {case.steps.noun}, on the training thread.",
        threshold=f"At least {format_share(SAMPLER_FRAC)} of the {case.steps.noun}.",
        advice="The sampler runs in the training process even with workers, once for every batch. Choose all indices of an "
        "epoch at once when it begins, with tensor operations, and only slice them here.",
        change="def __iter__(self):\n    order = self.choose_epoch()  # one tensor of indices, chosen once\n"
        "    for start in range(0, len(order), self.batch_size):\n"
        "        yield order[start : start + self.batch_size].tolist()",
        fix="choosing the samples of an epoch at once",
        evidence=(DATA_PAGE,),
        assumption="slicing chosen indices takes a tenth of that",
        tier="A",
        what_if=shorten_step(case, "data_wait", spent_ns, 0.9),
        gain_range=(0.8, 1.1),
    )


def _ask_for_it() -> Abstention:
    how = "Record with this version of Stepscope and Profiler(data_pipeline=True)."
    return Abstention("slow_sampler", "how long the sampler takes", how)


RULES = (
    Rule("in_memory_fetch", knob="workers", effort="code", judge=_judge_in_memory_fetch, stage="loader"),
    Rule("slow_sampler", knob="sampler", effort="code", judge=_judge_slow_sampler),
)
