"""The workers are fast enough on average, but too few batches lie ready for the slow moments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from collector.estimating.model import LoopModel
from profiler_server.diagnosis.limits import LATE_FRAC, PREFETCH_LOAD_FRAC
from profiler_server.diagnosis.what_if import feed
from profiler_server.diagnosis.wording import DATA_PAGE, say_wait, write_loader
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_share


def _deepen(prefetch: int) -> Callable[[LoopModel], LoopModel]:
    def change(model: LoopModel) -> LoopModel:
        return replace(model, prefetch=max(prefetch, model.prefetch))

    return change


def _judge(case: Case) -> Finding | None:
    loader, batches = case.loading.loader, case.loading.batches
    if loader is None or batches is None or not loader.num_workers or not case.loading.is_input_bound:
        return None
    own_ns = case.loading.loop.regular_step_ns - case.loading.wait_ns
    load = case.loading.batch_ns * case.loading.loop.fetches / (loader.num_workers * own_ns) if own_ns else 1.0
    if load >= PREFETCH_LOAD_FRAC or case.loading.not_ready_frac <= LATE_FRAC:
        return None
    depth = case.loading.choices.prefetch
    if depth is None or depth <= case.loading.loop.model.prefetch:
        return None
    return Finding(
        title="Too few batches are prefetched",
        measured=f"{say_wait(case)} The next batch was missing in {format_share(case.loading.not_ready_frac)} of the requests, although "
        f"making all batches would take {format_share(load)} of the workers' time.",
        threshold=f"The next batch is missing in more than {format_share(LATE_FRAC)} of the requests, and making batches takes less than "
        f"{format_share(PREFETCH_LOAD_FRAC)} of the workers' time.",
        advice=f"Let each worker prepare {depth} batches ahead; memory for batches grows in proportion.",
        change=write_loader(loader, prefetch_factor=depth),
        fix=f"prefetch_factor {case.loading.loop.model.prefetch} → {depth}",
        settings={"prefetch_factor": depth},
        evidence=(DATA_PAGE,),
        what_if=feed(case, _deepen(depth)),
        tier="M",
        gain_range=(0.8, 1.05),
    )


RULE = Rule("shallow_prefetch", knob="prefetch", effort="argument", judge=_judge)
