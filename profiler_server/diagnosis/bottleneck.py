"""Find the stage of a data pipeline that limits the steps. The pipeline is a DataLoader's or the user's own.

The verdict and every page use this module, so that all name the same stage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from collector.format.rank import read_step_rows
from collector.format.run import RankRun
from collector.format.schema.errors import read_or
from collector.format.schema.manifest import Loader
from collector.format.steps import StepSelection, read_integers, select_steps, train_steps
from profiler_server.analysis.data.batches import read_batches
from profiler_server.analysis.data.feeding import Feed, read_feeds
from profiler_server.analysis.data.fetches import read_making, read_own_making
from profiler_server.analysis.data.loop import count_batches
from profiler_server.analysis.data.queues import read_queues, summarize_readiness
from profiler_server.analysis.data.stages import load_workers, read_own
from profiler_server.analysis.memory.resources import summarize_host
from profiler_server.diagnosis.limits import loading as limits
from profiler_server.diagnosis.limits.facts import CAPPED_NEED, COMPUTING_FRAC, QUEUED_FRAC
from profiler_server.facts.loading import BatchTimes, Bottleneck, Readiness
from profiler_server.facts.machine import HostLoad
from profiler_server.facts.pipeline import WORKER_STAGES, OwnMaking, OwnStage, WorkerLoad
from profiler_server.format import fill_in, format_duration, format_share


def find_bottleneck(
    readiness: Sequence[Readiness],
    work_ns: Mapping[str, float],
    wait_frac: float,
    load: WorkerLoad | None = None,
    regular_frac: float | None = None,
) -> Bottleneck:
    """Return the stage that limits the step, by the rules of the profiler MindInsight; stage None if no stage does.

    `readiness` lists the queues, that of the workers first. `work_ns` is the mean work per batch of each stage.
    `wait_frac` is the share of the mean step that waits for data; `regular_frac` is that share of steps that do not
    begin an epoch, None if unknown. The limiting stage has a full queue before it and an empty one after it. If the
    first queue is empty, this is the worker stage with the most work. `load` explains a wait for batches that are
    ready.
    """
    if wait_frac < limits.MODERATE_WAIT_FRAC:
        return Bottleneck(None, fill_in("The {noun} hardly waits for data: every stage keeps up."))
    if regular_frac is not None and _waits_at_starts(wait_frac, regular_frac):
        share = format_share(regular_frac)
        starts = "Most of the wait is in the first {nouns} of {epochs}; the other {nouns} wait for data for {share} of their time."
        return Bottleneck(None, fill_in(starts, share=share), "epoch_start")
    workers = {stage: work_ns[stage] for stage in WORKER_STAGES if work_ns.get(stage)}
    slowest = max(workers, key=lambda stage: workers[stage]) if workers else None
    if not readiness:
        return _find_own_stage(slowest, list(workers), load.own if load is not None else None)
    first, last = readiness[0], readiness[-1]
    if _are_workers_late(first, last, load):
        return Bottleneck(slowest, f"The {_say(first)} lacked the next batch: the workers are the limit.", "making")
    if _is_late(last) and not _is_late(first):
        return Bottleneck("pin", f"The {_say(first)} held the next batch while the {_say(last)} lacked it.", "making")
    found = _explain_ready(slowest, load)
    if load is not None and load.making is not None:
        return replace(found, made_frac=load.making.made_frac)
    if load is not None and found.stage == "send" and _is_late(last):
        return replace(found, reason=_say_idle(load.busy_frac))
    return found


def _waits_at_starts(wait_frac: float, regular_frac: float) -> bool:
    """Return whether most of the wait is in first steps of epochs, and other steps are not highly input-bound."""
    if regular_frac < limits.MODERATE_WAIT_FRAC:
        return True
    return regular_frac < limits.HIGH_WAIT_FRAC and regular_frac < (1.0 - limits.LATE_WAIT_FRAC) * wait_frac


def _say_idle(busy_frac: float) -> str:
    share = format_share(busy_frac)
    text = "While {nouns} run, the workers work only {share} of their time, so they are not what the {noun} waits for."
    return fill_in(text, share=share)


def _find_own_stage(slowest: str | None, stages: Sequence[str], own: OwnMaking | None) -> Bottleneck:
    """Return `slowest`, the longest stage of a loader without workers, as the limit. The stage is None if the timed
    stages explain too little of the wait for a batch."""
    if own is None or own.timed_ns >= limits.TIMED_WAIT_FRAC * own.wait_ns:
        why = "There are no worker processes: each stage holds up the {noun} for as long as it runs."
        return Bottleneck(slowest, fill_in(why), "making")
    names = " and ".join(_DOING[stage] for stage in stages)
    take = "takes" if len(stages) == 1 else "take"
    why = (
        f"Of {format_duration(own.wait_ns)} for a batch, {names} {take} {format_duration(own.timed_ns)}; "
        "the rest is the DataLoader's own work per batch."
    )
    return Bottleneck(None, why, "overhead")


_DOING = {"read": "reading", "transform": "transforming", "collate": "collating", "send": "sending"}


def _are_workers_late(first: Readiness, last: Readiness, load: WorkerLoad | None) -> bool:
    """Return whether the step waits for batches that the workers have not finished.

    A missing batch alone is no evidence, because a finished batch that is still being sent is also missing in the
    queue. There must be waits that end when the batch is finished, or workers that are busy while batches are missing.
    """
    lacks = _is_late(first) and _is_late(last)
    if load is None:
        return lacks
    if load.making is None:
        return lacks and load.busy_frac >= limits.HANDOVER_BUSY_FRAC
    often_unmade = 1.0 - load.making.made_frac > limits.EMPTY_QUEUE_FRAC
    return load.making.unmade_wait_frac >= limits.UNMADE_WAIT_FRAC or (
        often_unmade and load.busy_frac >= limits.WORKERS_BUSY_FRAC
    )


def _is_late(queue: Readiness) -> bool:
    """Return whether a queue often lacks the requested batch, or a few missing batches cause most of the wait."""
    return queue.not_ready_frac > limits.EMPTY_QUEUE_FRAC or queue.late_wait_frac > limits.LATE_WAIT_FRAC


def _explain_ready(slowest: str | None, load: WorkerLoad | None) -> Bottleneck:
    """Return the cause of a step's wait although the next batch is ready. `slowest` is the stage with the most work.

    The worker that made a batch also sends it, and may already be busy with the next batch. Workers that compute delay
    their finished batches. Workers that mostly wait do not delay them; the limit is then the receiving of batches.
    """
    if load is not None and load.queued_frac >= QUEUED_FRAC:
        if slowest is not None and load.busy_frac >= limits.WORKERS_BUSY_FRAC and (load.cpu_frac or 0.0) > CAPPED_NEED:
            share = format_share(load.busy_frac)
            why = "While {nouns} run, the workers work {share} of their time, on the processors that the {noun} waits for."
            return Bottleneck(slowest, fill_in(why, share=share), "making")
        share = format_share(load.queued_frac)
        why = f"Batches are ready, but the recorded thread waits for a free processor for {share} of its time."
        return Bottleneck(None, why, "processor")
    if slowest is not None and load is not None and load.busy_frac >= limits.BUSY_WORKERS_FRAC:
        return Bottleneck(slowest, "The workers work all the time: they are the limit.", "making")
    computes = load is not None and (load.cpu_frac is None or load.cpu_frac >= COMPUTING_FRAC)
    if slowest is not None and load is not None and load.busy_frac >= limits.HANDOVER_BUSY_FRAC and computes:
        why = "Batches are ready, but the workers are too busy to hand them over quickly."
        return Bottleneck(slowest, why, "receiving")
    why = "Batches are ready when they are asked for: the {noun} waits to receive them from the worker."
    if load is not None and load.making is not None:
        share = format_share(load.making.made_frac)
        why = f"The workers had finished {share} of the batches before they were asked for: the {{noun}} waits to receive them."
    return Bottleneck("send", fill_in(why), "receiving")


def _say(queue: Readiness) -> str:
    return queue.queue.replace("_", " ")


def find_own_bottleneck(stages: Sequence[OwnStage], wait_frac: float = 0.0) -> Bottleneck:
    """Return the stage of the user's own pipeline for which the other stages, or the steps, wait.

    This is the busiest stage, if it works at least half of its time and hardly waits for room in its output queue.
    Otherwise it is the stage that works during most of the steps' wait for data. If no stage does either, the result
    has the stage None. Its reason then names the consumer of the pipeline if the last stage waits for room, or the
    source if the first stage waits for input. `wait_frac` is the share of the step that waits for data.
    """
    if not stages:
        return Bottleneck(None, "No stage was recorded.")
    busiest = max(stages, key=lambda stage: stage.summary.busy_frac or 0.0)
    busy = busiest.summary.busy_frac or 0.0
    last = stages[-1].summary
    if busy >= limits.OWN_BUSY_FRAC and (busiest.summary.output_wait_frac or 0.0) < limits.OWN_WAIT_FRAC:
        return Bottleneck(busiest.name, " ".join(_explain_own(stages, busiest, busy)), "making")
    if wait_frac >= limits.MODERATE_WAIT_FRAC:
        return _find_awaited(stages)
    if (last.output_wait_frac or 0.0) >= limits.OWN_WAIT_FRAC:
        share = format_share(last.output_wait_frac)
        return Bottleneck(None, f"{last.name} waits for its output for {share}: what takes the results is the limit.")
    first = stages[0].summary
    if (first.input_wait_frac or 0.0) >= limits.OWN_WAIT_FRAC:
        share = format_share(first.input_wait_frac)
        return Bottleneck(None, f"{first.name} waits for its input for {share}: what feeds the pipeline is the limit.")
    return Bottleneck(None, f"No stage works more than {format_share(busy)} of its time.")


def _find_awaited(stages: Sequence[OwnStage]) -> Bottleneck:
    awaited = max(stages, key=lambda stage: stage.awaited_frac)
    share = format_share(awaited.awaited_frac)
    if awaited.awaited_frac >= limits.TIMED_WAIT_FRAC:
        return Bottleneck(awaited.name, f"{awaited.name} works during {share} of the wait for data.", "making")
    why = f"No marked stage works during most of the wait for data: {awaited.name} does for {share} of it."
    return Bottleneck(None, why, "unmarked")


def _explain_own(stages: Sequence[OwnStage], limit: OwnStage, busy: float) -> list[str]:
    replicas = limit.summary.replicas
    of = f" in each of {replicas} replicas" if replicas > 1 else ""
    said = [f"{limit.name} works {format_share(busy)} of the time{of}."]
    at = stages.index(limit)
    for stage in stages[:at]:
        if (stage.summary.output_wait_frac or 0.0) >= limits.OWN_WAIT_FRAC:
            share = format_share(stage.summary.output_wait_frac)
            said.append(f"The stage before it, {stage.name}, waits {share} of the time for room in its output queue.")
    starved = (
        stage.summary for stage in stages[at + 1 :] if (stage.summary.input_wait_frac or 0.0) >= limits.OWN_WAIT_FRAC
    )
    said += [f"{row.name}, after it, waits for input for {format_share(row.input_wait_frac)}." for row in starved]
    return said


@dataclass(frozen=True)
class Demand:
    """The demand of the steps on a loader. A regular step is one that does not begin an epoch. `fetches` is batches per
    regular step. `wait_frac` is the share of the mean step that waits for the loader; `regular_frac` is that share of
    the mean regular step, which takes `regular_ns`."""

    fetches: float
    regular_ns: float
    wait_frac: float
    regular_frac: float


def measure_demand(feed: Feed, selection: StepSelection) -> Demand:
    """Return the demand of the selected steps on the loader of `feed`. At least one step must be regular."""
    kept, regular = selection.kept, selection.regular
    mean_ns, regular_ns = (float(selection.duration_ns[chosen].mean()) for chosen in (kept, regular))
    return Demand(
        fetches=float(count_batches(feed.fetches[regular]).mean()),
        regular_ns=regular_ns,
        wait_frac=feed.mean_wait_ns(kept) / mean_ns if mean_ns else 0.0,
        regular_frac=feed.mean_wait_ns(regular) / regular_ns if regular_ns else 0.0,
    )


def find_limit(
    rank: RankRun,
    loader: Loader | None,
    readiness: Sequence[Readiness],
    demand: Demand,
    batches: BatchTimes | None,
    host: HostLoad | None,
) -> Bottleneck:
    """Return what limits the steps. `host` is the load of the processors while the steps ran."""
    if loader is None and (stages := read_or((), read_own, rank)):
        limit = find_own_bottleneck(stages, demand.regular_frac)
        if limit.stage is None or demand.regular_frac >= limits.MODERATE_WAIT_FRAC:
            return limit
    work = {stage: float(values.mean()) for stage, values in batches.stages_ns.items()} if batches else {}
    paid_ns = (loader.num_workers if loader else 0) * demand.regular_ns
    busy_frac = sum(work.values()) * demand.fetches / paid_ns if paid_ns else 0.0
    load = load_workers(busy_frac, batches.cpu_frac if batches else None, host)
    if loader is not None:
        making = read_or(None, read_making, rank, loader.id) if loader.num_workers else None
        own = None if loader.num_workers else read_or(None, read_own_making, rank, loader.id)
        load = replace(load, making=making, own=own)
    return find_bottleneck(readiness, work, demand.wait_frac, load, demand.regular_frac)


def read_limit(rank: RankRun, number: int | None) -> Bottleneck:
    """Return what limits the steps fed by loader `number` (None: unknown loader). Raises as `RankRun.table` does."""
    rows = read_step_rows(rank).steps
    train, selection = train_steps(rows), select_steps(rows)
    feed = next((feed for feed in read_feeds(rank, train) if feed.loader == number), None)
    if feed is None or not selection.kept.any():
        return Bottleneck(None, fill_in("No {noun} waits for this loader."))
    loader = next((entry for entry in rank.manifest.loaders if entry.id == number and not entry.watched), None)
    starts = read_integers(train, "start_ns")
    host = read_or(None, summarize_host, rank, int(starts[0]), int(starts[-1] + selection.duration_ns[-1]))
    readiness = read_readiness(rank, loader, train.filter(pa.array(selection.regular)))
    batches = read_batches(rank, loader.id) if loader is not None else None
    return find_limit(rank, loader, readiness, measure_demand(feed, selection), batches, host)


def read_readiness(rank: RankRun, loader: Loader | None, steps: pa.Table) -> tuple[Readiness, ...]:
    """Return for each queue how often it held the next batch when a step requested it; empty if not sampled."""
    samples = read_or(None, read_queues, rank)
    if samples is None or loader is None or not samples.num_rows:
        return ()
    return summarize_readiness(samples, loader.id, steps)
