"""How many batches are asked for ahead, and in which order they are taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from collector.estimating.model import LoopModel
from profiler_server.diagnosis.limits.facts import LATE_FRAC, UNEVEN_LOAD_FRAC, UNEVEN_SPREAD
from profiler_server.diagnosis.limits.loading import PREFETCH_LOAD_FRAC
from profiler_server.diagnosis.what_if import feed
from profiler_server.diagnosis.wording import DATA_PAGE, find_in_stage, say_functions, say_wait, write_loader
from profiler_server.facts.case import Case, Finding, Rule
from profiler_server.format import format_duration, format_share


def _deepen(prefetch: int) -> Callable[[LoopModel], LoopModel]:
    def change(model: LoopModel) -> LoopModel:
        return replace(model, prefetch=max(prefetch, model.prefetch))

    return change


def _judge_shallow_prefetch(case: Case) -> Finding | None:
    """The workers are fast enough on average, but too few batches lie ready for the slow moments."""
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


def _judge_uneven_samples(case: Case) -> Finding | None:
    """A few slow batches hold up those behind them, although the workers are fast enough on average."""
    loader, batches = case.loading.loader, case.loading.batches
    if loader is None or batches is None or not case.loading.is_input_bound or not case.loading.is_uneven:
        return None
    stage = max(batches.stages_ns, key=lambda name: float(batches.stages_ns[name].std()))
    depth = max(4, case.loading.loop.model.prefetch)
    held = case.loading.readiness[0].held_up_frac if case.loading.readiness else 0.0
    late = (
        f"; in {format_share(held)} of the requests batches that were ready waited for an earlier one" if held else ""
    )

    def change(model: LoopModel) -> LoopModel:
        return replace(model, in_order=False, prefetch=max(depth, model.prefetch))

    return Finding(
        title="A few slow samples hold up the rest",
        measured=f"{say_wait(case)} The median batch takes {format_duration(case.loading.median_batch_ns)}, the slowest "
        f"{format_duration(float(batches.total_ns.max()))}{late}."
        f"{say_functions(find_in_stage(case, stage), f'the stage “{stage}”')}",
        threshold=f"The times of the batches vary by more than {format_share(UNEVEN_SPREAD)} of their mean (standard deviation), and "
        f"median batches would take less than {format_share(UNEVEN_LOAD_FRAC)} of the workers' time.",
        advice="Take batches as they are ready and ask for more ahead. The order of the data then depends on timing; "
        "if it must not, put samples of similar cost together, or make the slow ones cheaper.",
        change=write_loader(loader, in_order=False, prefetch_factor=depth),
        fix=f"in_order=False with prefetch_factor {depth}",
        settings={"in_order": False, "prefetch_factor": depth},
        evidence=(DATA_PAGE,),
        what_if=feed(case, change),
        tier="M",
        gain_range=(0.7, 1.05),
    )


RULES = (
    Rule("shallow_prefetch", knob="prefetch", effort="argument", judge=_judge_shallow_prefetch),
    Rule("uneven_samples", knob="prefetch", effort="argument", judge=_judge_uneven_samples),
)
