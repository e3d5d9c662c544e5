"""Gradients are accumulated over several backwards, and reduced in each of them."""

from __future__ import annotations

from dataclasses import replace

from profiler_server.diagnosis.limits import MIN_ACCUMULATED, UNSYNCED_FRAC
from profiler_server.diagnosis.what_if import shorten_step
from profiler_server.diagnosis.wording import STEPS_PAGE
from profiler_server.facts.case import Case, Finding, Rule, WhatIf
from profiler_server.format import format_duration, format_share


def _judge(case: Case) -> Finding | None:
    if case.needless_syncs_frac <= 0.0:
        return None
    saved_ns = case.needless_syncs_frac * case.transfer_ns
    share = saved_ns / case.steps.mean_ns
    if share < UNSYNCED_FRAC:
        return None
    backwards = case.backwards_per_update
    return Finding(
        title="Gradients are reduced in every backward, although they are accumulated",
        measured=f"An update follows {backwards:.2g} backwards, and each of them reduces the gradients; training waits "
        f"{format_duration(case.transfer_ns)} per {case.steps.noun} for that, the wait for slower ranks taken out.",
        threshold=f"At least {MIN_ACCUMULATED} backwards per update, nearly all of them reduced, and at least "
        f"{format_share(UNSYNCED_FRAC)} of the {case.steps.noun} to be saved.",
        advice="Reduce in the last backward before the update only: the sum is the same.",
        change="with contextlib.nullcontext() if is_last else model.no_sync():\n    loss = model(batch) / accumulate\n"
        "    loss.backward()",
        fix="no_sync() in all backwards but the last",
        evidence=(STEPS_PAGE,),
        tier="A",
        what_if=_drop_reductions(case),
        gain_range=(0.7, 1.6) if _reduces_on_processors(case) else (0.7, 1.1),
    )


def _drop_reductions(case: Case) -> WhatIf:
    """Return the what-if of reductions that are left out; on processors they also slow the backward that hides them."""
    what_if = shorten_step(case, "communication", case.transfer_ns, case.needless_syncs_frac)
    if not _reduces_on_processors(case):
        return what_if
    return replace(what_if, touches={**what_if.touches, "backward": case.steps.phases_ns["backward"]})


def _reduces_on_processors(case: Case) -> bool:
    return case.ranks.ddp is not None and case.ranks.ddp.device_type == "cpu"


RULE = Rule("no_sync_missing", knob="communication", effort="code", judge=_judge)
