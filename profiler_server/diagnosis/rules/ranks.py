"""Ranks that wait for a slow rank, a slow loader or a heavy stage, and the messages between ranks."""

from __future__ import annotations

from dataclasses import replace

from collector.format.phases import PHASE_LABELS
from profiler_server.diagnosis.limits import ranks as limits
from profiler_server.diagnosis.limits.facts import (
    LEAST_OF_DELAY,
    MIN_GAIN_FRAC,
    NOISY_FRAC,
)
from profiler_server.diagnosis.what_if import TIMELINE, look_for, mend_ranks, predict, save_each_step, shorten_step
from profiler_server.facts.case import Abstention, Case, Evidence, Finding, Rule, WhatIf
from profiler_server.facts.job import Handover, HeavyStage, Slow, Turns, UnevenWork
from profiler_server.facts.machine import Gain, Sighting
from profiler_server.format import format_duration, format_share
from profiler_server.words.phrases import describe, name_parts


def _judge_straggler(case: Case) -> Finding | None:
    """One rank is clearly behind the others; they wait for it in their collectives."""
    verdict = case.ranks.verdict
    # The Ranks page uses the same verdict on whether a rank is slow.
    if not isinstance(verdict, (Slow, Handover)):
        return None
    latest = verdict.comparison.latest
    if isinstance(verdict, Slow) and latest.waits_for_data:
        return None  # slow_rank_loader explains more
    slow, others = latest.rank, "the others" if latest.others > 1 else "the other rank"
    culprit = case.ranks.culprit if isinstance(verdict, Slow) else None
    given = {} if culprit is None else name_parts(culprit)
    if isinstance(verdict, Handover):
        given = {"before": verdict.before, "after": verdict.after}
    entry = "handover" if isinstance(verdict, Handover) else "named" if culprit is not None else ""
    found = Finding(
        describe(
            case,
            f"fixed_straggler.{entry}".rstrip("."),
            slow=slow,
            others=others,
            in_time=others if latest.others > 1 else f"rank {min({*verdict.comparison.blame_ns} - {slow}, default=0)}",
            late=_say_late(verdict, "the median of the others" if latest.others > 1 else others),
            **given,
        ),
        evidence=(
            Evidence("ranks", "sort=-own", "All ranks side by side"),
            Evidence("steps", f"rank={slow}", f"Phases of rank {slow}"),
        ),
        severity="medium",
        doubt_frac=0.2,
        least_frac=LEAST_OF_DELAY,
    )
    if verdict.comparison.is_hidden:
        return found
    part = latest.phase if case.manifest.rank == slow else "communication"
    # A slow rank is reported even if the gain is smaller than its uncertainty.
    return replace(found, what_if=mend_ranks(case, part), otherwise=found)


def _say_late(verdict: Slow | Handover, middle: str) -> str:
    comparison, latest = verdict.comparison, verdict.comparison.latest
    who = "they wait" if latest.others > 1 else "it waits"
    if isinstance(verdict, Handover):
        return (
            f"Before step {verdict.step:,} {who} for rank {verdict.before} ({format_duration(verdict.before_ns)} a step), "
            f"from then on for rank {verdict.after} ({format_duration(verdict.after_ns)} a step)."
        )
    wait = (
        f"{who} for it, {format_duration(verdict.gain_ns)} a step ({format_share(comparison.share(verdict.gain_ns))})"
    )
    if comparison.is_hidden:
        wait = f"whether {who} for it was not seen"
    often = f"It is the last in {format_share(comparison.last_frac[latest.rank])} of the steps."
    if verdict.longest is not None:
        last, count = verdict.longest
        often = f"It is the last in {last:,} of the {count:,} steps in which the others waited by far the longest."
    return f"Rank {latest.rank} is behind {middle} by {format_share(latest.late_frac)} of the step; {wait}. {often}"


def _judge_rank_loader(case: Case) -> Finding | None:
    """One rank waits for its data, and the others wait for it."""
    verdict = case.ranks.verdict
    if not isinstance(verdict, Slow) or not verdict.comparison.latest.waits_for_data:
        return None
    latest = verdict.comparison.latest
    behind_ns = latest.phase_ns - latest.phase_others_ns
    if behind_ns < limits.RANK_LOADER_FRAC * case.steps.mean_ns:
        return None
    slow = latest.rank
    return Finding(
        describe(
            case,
            "slow_rank_loader",
            slow=slow,
            latest=latest,
            verdict=verdict,
            share=verdict.comparison.share(verdict.gain_ns),
        ),
        evidence=(
            Evidence("data", f"rank={slow}", f"The data pipeline of rank {slow}"),
            Evidence("ranks", "sort=-own", "All ranks side by side"),
        ),
        what_if=mend_ranks(case, "data_wait" if case.manifest.rank == slow else "communication"),
        doubt_frac=0.2,
        least_frac=LEAST_OF_DELAY,
    )


_EVIDENCE = (Evidence("ranks", "", "All ranks side by side"),)


def _judge_turns_or_work(case: Case) -> Finding | None:
    """In each step another rank is the slowest, or another micro-batch, and all others wait for it."""
    match case.ranks.verdict:
        case Turns() as turns:
            return _judge_turns(case, turns)
        case UnevenWork() as uneven:
            return _describe_uneven(case, uneven)
        case _:
            return None


def _judge_turns(case: Case, turns: Turns) -> Finding | None:
    lost_ns = min(turns.gain_ns, case.steps.phases_ns["communication"])
    share = lost_ns / case.steps.mean_ns
    is_uneven = turns.comparison.uneven_correlation is not None
    is_crowded = case.host.others_frac >= NOISY_FRAC or case.lacks_processors
    # Ranks that share processors are slow in turn by chance, in changing phases.
    is_chance = is_crowded and not is_uneven and not turns.is_one_phase
    if share < limits.ROTATING_FRAC or is_chance:
        return None
    most = max(turns.comparison.last_frac.values(), default=0.0)
    return Finding(
        describe(
            case,
            "rotating_straggler",
            lost_ns=lost_ns,
            share=share,
            most=most,
            longer=_say_longer(turns),
            reasons=_say_reasons(is_uneven, is_crowded),
        ),
        evidence=_EVIDENCE,
        what_if=shorten_step(case, "communication", lost_ns, 0.5),
        least_frac=0.5,
    )


def _describe_uneven(case: Case, uneven: UnevenWork) -> Finding:
    comparison = uneven.comparison
    return Finding(
        describe(
            case,
            "rotating_straggler.uneven",
            uneven=uneven,
            share=comparison.share(uneven.gain_ns),
            reasons=_say_reasons(comparison.uneven_correlation is not None, is_crowded=False),
        ),
        evidence=_EVIDENCE,
        severity="medium",
        what_if=save_each_step("communication", uneven.gain_ns),
        doubt_frac=0.2,
        least_frac=0.5,
    )


def _say_longer(turns: Turns) -> str:
    named = [PHASE_LABELS[cause.name].lower() for cause in turns.causes[:2] if cause.name in PHASE_LABELS]
    return f" What takes longer on it: {', '.join(named)}." if named else ""


def _say_reasons(is_uneven: bool, is_crowded: bool) -> str:
    if not is_uneven:
        return (
            "Why was not seen. One possible reason is work that differs from rank to rank: sequences or images of "
            "unequal size."
        )
    host = " Processors that the ranks share with others are another one." if is_crowded else ""
    return (
        "Forward and backward grow and shrink together, which sequences or images of unequal size would explain: one "
        f"possible reason.{host}"
    )


def _judge_stages(case: Case) -> Finding | None:
    """One stage of a pipeline has more work than the others, which wait for it."""
    heavy = case.ranks.verdict
    if not isinstance(heavy, HeavyStage):
        return None
    part = "backward" if case.manifest.rank in heavy.culprits else "communication"
    return Finding(
        describe(case, "uneven_stages", heavy=heavy),
        evidence=(Evidence("ranks", "", "All ranks side by side"),),
        severity="medium",
        what_if=save_each_step(part, heavy.gain_ns),
        doubt_frac=0.2,
        least_frac=0.5,
    )


def _judge_exposed_all_reduce(case: Case) -> Finding | None:
    """Communication that no computing hides, without the wait for a slow rank."""
    # In a pipeline, communication is mostly the wait for other stages.
    if case.ranks.world_size < 2 or case.ranks.is_pipeline:
        return None
    own_ns, transfer_ns = case.steps.phases_ns["communication"], case.transfer_ns
    share = transfer_ns / case.steps.mean_ns
    # Other rules report these causes.
    if share < limits.EXPOSED_FRAC or case.needless_syncs_frac or case.has_odd_buckets:
        return None
    rest = (
        f"{format_duration(transfer_ns)} ({format_share(share)}) remain after subtracting the wait for slower ranks."
        if case.ranks.peers
        else "how much of that is waiting for slower ranks is unknown, because no other rank was recorded here."
    )
    return Finding(
        describe(
            case,
            "exposed_all_reduce.sharded" if case.ranks.is_sharded else "exposed_all_reduce",
            own_ns=own_ns,
            rest=rest,
        ),
        what_if=shorten_step(case, "communication", transfer_ns, 0.5),
        least_frac=0.3,
    )


def _judge_gloo_on_cuda(case: Case) -> Finding | None:
    """Gradients of CUDA devices are reduced by gloo, over the memory of the host."""
    ddp, transfer_ns = case.ranks.ddp, case.transfer_ns
    if ddp is None or ddp.backend != "gloo" or ddp.device_type != "cuda":
        return None
    share = transfer_ns / case.steps.mean_ns
    if share < limits.GLOO_FRAC:
        return None
    return Finding(
        describe(case, "gloo_on_cuda", share=share),
        what_if=shorten_step(case, "communication", transfer_ns, 0.7),
        least_frac=0.6,
    )


def _judge_no_sync_missing(case: Case) -> Finding | None:
    """Gradients are accumulated over several backwards, and reduced in each of them."""
    if case.needless_syncs_frac <= 0.0:
        return None
    saved_ns = case.needless_syncs_frac * case.transfer_ns
    share = saved_ns / case.steps.mean_ns
    if share < limits.UNSYNCED_FRAC:
        return None
    backwards = case.backwards_per_update
    return Finding(
        describe(case, "no_sync_missing", backwards=backwards),
        what_if=_drop_reductions(case),
        doubt_frac=None if _reduces_on_processors(case) else 0.2,
        least_frac=0.7,
    )


def _drop_reductions(case: Case) -> WhatIf:
    """Return the what-if without needless reductions. On processors, they also slow the backward that hides them."""
    what_if = shorten_step(case, "communication", case.transfer_ns, case.needless_syncs_frac)
    if not _reduces_on_processors(case):
        return what_if
    return replace(what_if, touches={**what_if.touches, "backward": case.steps.phases_ns["backward"]})


def _reduces_on_processors(case: Case) -> bool:
    return case.ranks.ddp is not None and case.ranks.ddp.device_type == "cpu"


def _judge_bucket_copies(case: Case) -> Finding | None:
    """On a host, DistributedDataParallel copies every gradient into a bucket and back."""
    ddp = case.ranks.ddp
    if ddp is None or ddp.shares_buckets or ddp.device_type != "cpu" or not ddp.synced_backwards:
        return None
    synced = ddp.synced_backwards / ddp.backwards * case.backwards_per_step
    copied_ns = 2 * ddp.parameter_bytes * synced / limits.COPIED_BYTES_PER_S * 1e9
    spent_ns = min(copied_ns, case.steps.phases_ns["backward"])
    share = spent_ns / case.steps.mean_ns
    if share < limits.COPIES_FRAC:
        return None
    return Finding(
        describe(case, "bucket_copies", spent_ns=spent_ns, share=share),
        what_if=shorten_step(case, "backward", spent_ns, 0.9),
        least_frac=0.4,
    )


_UNFIT = Abstention(
    "bucket_size",
    "reductions of at least two sizes whose time follows their size, without waits for slower ranks",
    "Record a window on every rank, after the first steps.",
)


def _judge_bucket_size(case: Case) -> Finding | Abstention | None:
    """DistributedDataParallel sends gradients in too many small buckets, or in one."""
    seen = look_for(case, "bucket_size", "larger_buckets") if case.device.replay is not None else None
    if isinstance(seen, Sighting) and seen.gain is not None:
        return _describe_replayed(case, seen, seen.gain)
    found = _judge_noted(case)
    if found is not None:
        return found
    if seen is None or isinstance(seen, Abstention):
        return seen
    is_large = seen.figures["bytes"] >= seen.count * limits.USUAL_BUCKET_BYTES
    return None if is_large or seen.spent_ns < limits.EXPOSED_FRAC * case.steps.mean_ns else _UNFIT


def _describe_replayed(case: Case, seen: Sighting, gain: Gain) -> Finding | None:
    """Return the finding on small buckets that a detailed window shows; None if joining them gains too little.

    Joined buckets are sent later, so only the replay gives their saving.
    """
    if gain.frac < MIN_GAIN_FRAC:
        return None
    figures = seen.figures
    finding = Finding(
        describe(
            case,
            "bucket_size.replayed",
            figures=figures,
            seen=seen,
            count=seen.count / figures["backwards"],
            joined=figures["joined"] / figures["backwards"],
            bytes_each=figures["bytes"] / figures["backwards"],
            mib_ns=1e9 * (1 << 20) / figures["bytes_per_s"],
            wanted=round(figures["cap_mib"]),
        ),
        evidence=(TIMELINE,),
    )
    return predict(case, finding, "communication", gain)


def _judge_noted(case: Case) -> Finding | None:
    ddp, transfer_ns = case.ranks.ddp, case.transfer_ns
    if ddp is None or not case.has_odd_buckets:
        return None
    share = transfer_ns / case.steps.mean_ns
    if share < limits.EXPOSED_FRAC:
        return None
    whole = sum(ddp.bucket_bytes)
    wanted = 25 if ddp.has_tiny_buckets else max(1, round(whole / 6 / (1 << 20)))
    entry, count = "bucket_size.tiny" if ddp.has_tiny_buckets else "bucket_size", len(ddp.bucket_bytes)
    return Finding(
        describe(case, entry, count=count, whole=whole, share=share, wanted=wanted),
        what_if=shorten_step(case, "communication", transfer_ns, 0.5),
        least_frac=0.5,
    )


RULES = (
    Rule("fixed_straggler", knob="straggler", effort="code", judge=_judge_straggler),
    Rule("slow_rank_loader", knob="rank_loader", effort="code", judge=_judge_rank_loader),
    Rule("rotating_straggler", knob="straggler", effort="code", judge=_judge_turns_or_work),
    Rule("uneven_stages", knob="stages", effort="code", judge=_judge_stages),
    Rule("exposed_all_reduce", knob="communication", effort="argument", judge=_judge_exposed_all_reduce),
    Rule("gloo_on_cuda", knob="communication", effort="flag", judge=_judge_gloo_on_cuda),
    Rule("no_sync_missing", knob="communication", effort="code", judge=_judge_no_sync_missing),
    Rule("bucket_copies", knob="bucket_view", effort="flag", judge=_judge_bucket_copies),
    Rule("bucket_size", knob="communication", effort="argument", judge=_judge_bucket_size),
)
