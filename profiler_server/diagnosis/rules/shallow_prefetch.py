"""The workers are fast enough on average, but too few batches lie ready for the slow moments."""

from __future__ import annotations

from dataclasses import replace

from profiler_server.analysis.data.loader_simulation import LoopModel, simulate
from profiler_server.diagnosis.case import DATA_PAGE, LATE_LIMIT, Case, Finding, Rule, WhatIf, say_wait, write_loader
from profiler_server.format import format_share

_LOAD = 0.95
_DEPTHS = (4, 8, 16)


def _deepen(prefetch: int) -> WhatIf:
    def change(model: LoopModel) -> LoopModel:
        return replace(model, prefetch=max(prefetch, model.prefetch))

    return change


def _judge(case: Case) -> Finding | None:
    loader, batches = case.loader, case.batches
    if loader is None or batches is None or not loader.num_workers or not case.is_input_bound:
        return None
    own_ns = case.loop.regular_step_ns - case.wait_ns
    load = case.batch_ns * case.loop.fetches / (loader.num_workers * own_ns) if own_ns else 1.0
    if load >= _LOAD or case.not_ready_frac <= LATE_LIMIT:
        return None
    steps = {depth: simulate(_deepen(depth)(case.loop.model)).step_ns for depth in _DEPTHS}
    depth = next(depth for depth in _DEPTHS if steps[depth] <= 1.03 * min(steps.values()))
    if depth <= case.loop.model.prefetch:
        return None
    return Finding(
        title="Too few batches are prefetched",
        measured=f"{say_wait(case)} The next batch was missing {format_share(case.not_ready_frac)} of the time, although "
        f"the workers are loaded to {format_share(load)} only.",
        threshold=f"Next batch missing more than {format_share(LATE_LIMIT)}, workers loaded under {format_share(_LOAD)}.",
        advice=f"Let each worker have {depth} batches under way; the memory for them grows alike.",
        change=write_loader(loader, prefetch_factor=depth),
        fix=f"prefetch_factor {case.loop.model.prefetch} → {depth}",
        evidence=(DATA_PAGE,),
        what_if=_deepen(depth),
        tier="M",
        gain_range=(0.8, 1.05),
    )


RULE = Rule("shallow_prefetch", knob="prefetch", effort="argument", judge=_judge)
