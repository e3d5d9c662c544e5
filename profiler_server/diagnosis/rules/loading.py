"""The supply of batches: the number of workers, prefetching and order, and sending, fetching and choosing samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from collector.estimating.model import Job, LoopModel
from collector.format.phases import COMPUTING
from profiler_server.diagnosis.limits import loading as limits
from profiler_server.diagnosis.limits.facts import (
    CAPPED_DEMAND_FRAC,
    CAPPED_NEED,
    COPY_BYTES_PER_NS,
    INPUT_WAIT_FRAC,
    LATE_FRAC,
    STARVED_WAIT_FRAC,
)
from profiler_server.diagnosis.what_if import also, feed, scale_stages, set_workers, shorten_step
from profiler_server.facts.case import STEPS_PAGE, Abstention, Case, Finding, Rule, WhatIf
from profiler_server.facts.loading import BatchTimes, Choice
from profiler_server.format import format_duration, format_share, shorten_middle
from profiler_server.words.phrases import (
    DATA_PAGE,
    STAGES_PAGE,
    describe,
    find_dominant,
    find_in_phases,
    find_in_stage,
    say_functions,
    say_many_workers,
    write_loader,
)


def _choose_readers(case: Case) -> Choice | None:
    """Return how many workers should make the batches that the recorded thread makes now. None if unknown, or if moving
    batches between processes would cost too much."""
    return case.loading.choices.workers if case.loading.batch_ns >= 3 * limits.SEND_NS else None


def _judge_no_workers(case: Case) -> Finding | None:
    """`num_workers=0`: every batch is made between two steps."""
    loader, choice = case.loading.loader, _choose_readers(case)
    # An imported trace has the name of the loader's iterator, and no more.
    is_alone = case.shows_no_workers if loader is None else not (loader.num_workers or case.loading.is_in_memory)
    if choice is None or not is_alone:
        return None
    what_if = set_workers(case, choice.workers)
    given = {"workers": choice.workers, "processes": "process" if choice.workers == 1 else "processes"}
    if loader is None:
        text = describe(case, "no_workers", **given, least_ns=case.steps.mean_ns - case.data_wait_ns)
        return Finding(text, what_if=what_if, least_frac=0.5)
    return Finding(
        describe(
            case,
            "no_workers.iterable" if loader.style == "iterable" else "no_workers.recorded",
            **given,
            reason=choice.reason,
            many=say_many_workers(case, choice.workers),
            call=write_loader(loader, num_workers=choice.workers, persistent_workers=True),
        ),
        settings={"num_workers": choice.workers},
        evidence=(STAGES_PAGE, STEPS_PAGE),
        what_if=what_if,
        doubt_frac=None if case.loading.loop.assumed else 0.1,
        least_frac=0.5 if case.loading.loop.assumed else 0.9,
        otherwise=_say_no_processor(case) if case.demand_frac >= CAPPED_DEMAND_FRAC else None,
    )


def _say_no_processor(case: Case) -> Finding:
    """Return the finding that no processor is free for workers.

    The finding has no advice. It is for a user who sees a data wait with num_workers=0, and thinks of workers first.
    """
    cores = case.host.cores
    processors = "one processor is" if cores == 1 else f"{cores:g} processors are"
    text = describe(case, "no_workers.no_processor", processors=processors, busy_frac=min(case.demand_frac, 1.0))
    return Finding(text, evidence=(STAGES_PAGE, STEPS_PAGE))


_ALIVE = " Keep them alive between epochs (persistent_workers=True): starting more of them takes longer."
_CONTESTED = (
    " All cores are in use now, so more workers take them from other programs: expect a smaller gain while those run."
)


def _judge_too_few_workers(case: Case) -> Finding | Abstention | None:
    """The workers are busy all the time and still late."""
    loader, loop = case.loading.loader, case.loading.loop
    has_workers = loader.num_workers if loader is not None else case.facts.get("data_loader") == "workers"
    if not case.loading.is_input_bound or not has_workers:
        return None
    if loader is None or case.loading.batches is None:
        missing = "how long the workers take per batch"
        return Abstention("too_few_workers", missing, "Record with Profiler(data_pipeline=True).")
    busy = case.loading.batch_ns * loop.fetches / (loader.num_workers * loop.regular_step_ns)
    choice = case.loading.choices.workers
    if case.loading.not_ready_frac <= limits.EMPTY_QUEUE_FRAC or busy < limits.WORKERS_BUSY_FRAC or choice is None:
        return None
    workers = choice.workers
    if case.is_capped or case.loading.is_capped_by_storage or workers <= loader.num_workers:
        return None
    contested = case.demand_frac >= CAPPED_DEMAND_FRAC and case.loading.cpu_need > CAPPED_NEED
    kept = {} if loader.persistent_workers else {"persistent_workers": True}
    return Finding(
        describe(
            case,
            "too_few_workers",
            busy_frac=min(busy, 1.0),
            workers_are="the one worker is" if loader.num_workers == 1 else f"the {loader.num_workers} workers are",
            workers=workers,
            reason=choice.reason,
            more=say_many_workers(case, workers) + (_ALIVE if kept else "") + (_CONTESTED if contested else ""),
            call=write_loader(loader, num_workers=workers, **kept),
        ),
        settings={"num_workers": workers},
        evidence=(DATA_PAGE, STAGES_PAGE),
        what_if=set_workers(case, workers),
        doubt_frac=None if contested or loop.assumed else 0.1,
        least_frac=0.3 if contested else 0.5 if loop.assumed else 0.9,
    )


def _judge_oversubscribed_workers(case: Case) -> Finding | None:
    """More workers than cores, all of them computing."""
    loader, batches, workers = case.loading.loader, case.loading.batches, case.loading.choices.fewer_workers
    if loader is None or batches is None or batches.cpu_ns is None or workers is None:
        return None
    if case.demand_frac < CAPPED_DEMAND_FRAC:
        return None
    call = write_loader(loader, num_workers=workers)
    text = describe(case, "oversubscribed_workers", workers=workers, call=call)
    return Finding(text, evidence=(STAGES_PAGE,), severity="low")


def _judge_workers_capped_by_cores(case: Case) -> Finding | None:
    """The workers need more processors than there are: more of them would not help."""
    loader, batches = case.loading.loader, case.loading.batches
    if loader is None or not loader.num_workers or batches is None or batches.cpu_ns is None:
        return None
    if not case.loading.is_input_bound or not case.is_capped or case.loading.bottleneck.stage is None:
        return None
    text = describe(case, "workers_capped_by_cores", used=min(case.demand_frac, 1.0) * case.host.cores)
    return Finding(text, evidence=(STAGES_PAGE,), severity="medium")


def _judge_watched_input(case: Case) -> Finding | None:
    """A watched iterable whose items the recorded thread makes itself, between two steps."""
    watched, choice = case.loading.watched, _choose_readers(case)
    if watched is None or watched.reads_ahead is not False or choice is None:
        return None
    entry = "watched_input.computing" if case.loading.cpu_need >= limits.READER_NEED else "watched_input"
    return Finding(
        describe(
            case,
            "watched_input.several" if choice.workers > 1 else entry,
            name=shorten_middle(watched.dataset, 60),
            cpu_frac=watched.cpu_frac or 0.0,
            workers=choice.workers,
            reason=choice.reason,
        ),
        evidence=(STAGES_PAGE,),
        what_if=set_workers(case, choice.workers),
        doubt_frac=0.2,
        least_frac=0.5,
    )


def _prefetch(depth: int, in_order: bool | None = None) -> Callable[[LoopModel], LoopModel]:
    def change(model: LoopModel) -> LoopModel:
        order = model.in_order if in_order is None else in_order
        return replace(model, prefetch=max(depth, model.prefetch), in_order=order)

    return change


def _judge_shallow_prefetch(case: Case) -> Finding | None:
    """The workers are fast enough on average, but too few batches lie ready for the slow moments."""
    loader, loop = case.loading.loader, case.loading.loop
    if loader is None or case.loading.batches is None or not loader.num_workers or not case.loading.is_input_bound:
        return None
    own_ns = loop.regular_step_ns - case.loading.wait_ns
    load_frac = case.loading.batch_ns * loop.fetches / (loader.num_workers * own_ns) if own_ns else 1.0
    if load_frac >= limits.PREFETCH_LOAD_FRAC or case.loading.not_ready_frac <= LATE_FRAC:
        return None
    depth = case.loading.choices.prefetch
    if depth is None or depth <= loop.model.prefetch:
        return None
    call = write_loader(loader, prefetch_factor=depth)
    return Finding(
        describe(case, "shallow_prefetch", load_frac=load_frac, depth=depth, call=call),
        settings={"prefetch_factor": depth},
        evidence=(DATA_PAGE,),
        what_if=feed(case, _prefetch(depth)),
        doubt_frac=0.1,
        least_frac=0.8,
    )


def _judge_uneven_samples(case: Case) -> Finding | None:
    """A few slow batches hold up those behind them, although the workers are fast enough on average."""
    loader, batches = case.loading.loader, case.loading.batches
    if loader is None or batches is None or not case.loading.is_input_bound or not case.loading.is_uneven:
        return None
    stage = max(batches.stages_ns, key=lambda name: float(batches.stages_ns[name].std()))
    depth = max(4, case.loading.loop.model.prefetch)
    held = case.loading.readiness[0].held_up_frac if case.loading.readiness else 0.0
    late = f"; in {format_share(held)} of the requests batches that were ready waited for an earlier one"
    return Finding(
        describe(
            case,
            "uneven_samples",
            slowest_ns=float(batches.total_ns.max()),
            late=late if held else "",
            functions=say_functions(find_in_stage(case, stage), f"the stage “{stage}”"),
            call=write_loader(loader, in_order=False, prefetch_factor=depth),
            depth=depth,
        ),
        settings={"in_order": False, "prefetch_factor": depth},
        evidence=(DATA_PAGE,),
        what_if=feed(case, _prefetch(depth, in_order=False)),
        doubt_frac=0.15,
        least_frac=0.7,
    )


def _judge_ipc_bound(case: Case) -> Finding | None:
    """Moving batches out of the workers takes longer than making them, or holds up the step when they are ready."""
    loading, batches = case.loading, case.loading.batches
    if not loading.is_input_bound or loading.bottleneck.stage != "send" or batches is None:
        return None
    work_ns = {stage: float(times.mean()) for stage, times in batches.stages_ns.items()}
    # Batches are late, or they are so large when pickled that receiving them also explains the wait.
    explains = work_ns.get("send", 0.0) * loading.loop.fetches >= limits.SENDING_WAIT_FRAC * loading.wait_ns
    is_slowest = max(work_ns, key=lambda stage: work_ns[stage]) == "send"
    if is_slowest and (loading.bottleneck.cause != "receiving" or explains):
        return _blame_sending(case, batches, work_ns["send"])
    # For a small batch, or without a free processor, another way of sharing costs more than it saves.
    if batches.bytes < limits.LARGE_BATCH_BYTES or case.lacks_processors:
        return None
    return Finding(
        describe(case, "ipc_bound.receiving", ready_frac=1.0 - loading.not_ready_frac),
        evidence=(STAGES_PAGE,),
        severity="low"
        if loading.wait_frac >= limits.HIGH_WAIT_FRAC
        else "info",  # each batch costs about a millisecond
    )


def _blame_sending(case: Case, batches: BatchTimes, send_ns: float) -> Finding:
    tensors_ns = limits.TENSORS_SEND_NS + batches.bytes / COPY_BYTES_PER_NS
    left, freeing_ns = min(tensors_ns / send_ns, 1.0), _find_freeing(case)
    freed = f", and freeing the batch before {format_duration(freeing_ns)}" if freeing_ns >= limits.FREEING_NS else ""
    what_if = scale_stages(case, batches, ("send",), left)
    left_ns = min(tensors_ns, send_ns)
    return Finding(
        describe(case, "ipc_bound", send_ns=send_ns, share=batches.share("send"), freed=freed, left_ns=left_ns),
        evidence=(STAGES_PAGE,),
        what_if=also(what_if, shorten_step(case, "h2d", freeing_ns, 1.0 - left)) if freed else what_if,
        doubt_frac=0.2,
        least_frac=0.6,
    )


def _find_freeing(case: Case) -> float:
    """Return the time in ns that the step takes to free the previous batch; 0 if unknown.

    Unpickled objects are freed one by one. This happens on the line of the loop that receives the next batch, outside
    of any operator.
    """
    culprit = find_dominant(find_in_phases(case, "h2d"))
    if case.device.is_used or culprit is None or not culprit.is_own_line:
        return 0.0
    free = 1.0 - case.steps.operator_fracs.get("h2d", 0.0)
    return case.steps.phases_ns["h2d"] * culprit.share_frac * free


def _judge_pin_thread(case: Case) -> Finding | None:
    """The thread that pins memory is the limit: its input is full and its output is empty."""
    if case.loading.bottleneck.stage != "pin" or not case.loading.is_input_bound:
        return None
    return Finding(describe(case, "pin_thread"), evidence=(DATA_PAGE,), severity="medium")


def _judge_in_memory_fetch(case: Case) -> Finding | None:
    """Samples are in memory already, and fetching them one by one is what takes the time."""
    loading = case.loading
    if loading.loader is None or not loading.is_input_bound or not loading.takes_whole_batches:
        return None
    if loading.bottleneck.cause == "overhead" and loading.work_frac <= INPUT_WAIT_FRAC:
        return None
    sample_ns, size = loading.batch_ns / loading.batch_samples, loading.loader.batch_size or 32
    text = describe(case, "in_memory_fetch", sample_ns=sample_ns, size=size)
    return Finding(text, what_if=_index_whole_batches(case), doubt_frac=0.1, least_frac=0.7)


def _index_whole_batches(case: Case) -> WhatIf:
    def change(model: LoopModel) -> LoopModel:
        batches = tuple(Job(job.wall_ns * limits.INDEXED_LEFT_FRAC, job.cores) for job in model.batches)
        return replace(model, batches=batches, workers=0)

    fetching = feed(case, change)
    return fetching if case.loading.loop.model.workers else _spare_caches(case, fetching)


def _spare_caches(case: Case, what_if: WhatIf) -> WhatIf:
    """Return `what_if`, a change to less Python on the recorded thread, with a second gain: caches of the processor
    then hold more of the step's data. On a device there is no second gain."""
    if case.device.is_used:
        return what_if
    computing_ns = sum(case.steps.phases_ns[phase] for phase in COMPUTING)
    return also(what_if, shorten_step(case, "caches", limits.CACHES_FRAC * computing_ns, 1.0))


def _judge_slow_sampler(case: Case) -> Finding | Abstention | None:
    """Choosing the samples of each batch holds the recorded thread up."""
    loader, sampler, limit = case.loading.loader, case.loading.sampler, case.loading.bottleneck
    if loader is None or loader.style != "map":
        return None
    if sampler is None:
        receives = limit.cause == "receiving" or (limit.cause == "overhead" and not loader.num_workers)
        how = "Record with this version of Stepscope and Profiler(data_pipeline=True)."
        found = Abstention("slow_sampler", "how long the sampler takes", how)
        return found if case.loading.wait_frac >= STARVED_WAIT_FRAC and receives else None
    if loader.num_workers and limit.cause == "making":
        return None  # these workers make batches while the sampler runs, and the step waits for the workers
    spent_ns = min(sampler.batch_ns * case.loading.loop.fetches, case.data_wait_ns)
    share = spent_ns / case.steps.mean_ns
    if share < limits.SAMPLER_FRAC:
        return None
    return Finding(
        describe(case, "slow_sampler", sampler=sampler, share=share),
        evidence=(DATA_PAGE,),
        what_if=_spare_caches(case, shorten_step(case, "data_wait", spent_ns, 1.0 - limits.INDEXED_LEFT_FRAC)),
        doubt_frac=0.1,
        least_frac=0.8,
    )


RULES = (
    Rule("no_workers", knob="workers", effort="argument", judge=_judge_no_workers),
    Rule("too_few_workers", knob="workers", effort="argument", judge=_judge_too_few_workers),
    Rule("oversubscribed_workers", knob="workers", effort="argument", judge=_judge_oversubscribed_workers),
    Rule("workers_capped_by_cores", knob="cores", effort="code", judge=_judge_workers_capped_by_cores),
    Rule("watched_input", knob="workers", effort="code", judge=_judge_watched_input),
    Rule("shallow_prefetch", knob="prefetch", effort="argument", judge=_judge_shallow_prefetch),
    Rule("uneven_samples", knob="prefetch", effort="argument", judge=_judge_uneven_samples),
    Rule("ipc_bound", knob="send", effort="code", judge=_judge_ipc_bound, stage="send"),
    Rule("pin_thread", knob="pin", effort="code", judge=_judge_pin_thread),
    Rule("in_memory_fetch", knob="workers", effort="code", judge=_judge_in_memory_fetch, stage="loader"),
    Rule("slow_sampler", knob="sampler", effort="code", judge=_judge_slow_sampler),
)
