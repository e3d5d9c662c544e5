"""Choosing the samples of each batch holds the training thread up."""

from __future__ import annotations

from profiler_server.diagnosis.limits import SAMPLER_FRAC, STARVED_WAIT_FRAC
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import DATA_PAGE, say_wait
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.facts.results import Abstention
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | Abstention | None:
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


RULE = Rule("slow_sampler", knob="sampler", effort="code", judge=_judge)
