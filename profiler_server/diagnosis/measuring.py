"""Measure a rank once for all rules: from its tables to a `Case`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.edge import attempt
from collector.format.intervals import Mask
from collector.format.parts import find_files
from collector.format.phases import PHASE_NAMES
from collector.format.run import RankRun, Run
from collector.format.schema.errors import read_or
from collector.format.schema.manifest import Loader, RankManifest
from collector.format.steps import (
    StepRows,
    StepSelection,
    count_as_steps,
    is_kind,
    read_integers,
    select_steps,
    train_steps,
)
from profiler_server.analysis.data.batches import estimate_batches, read_batches, read_reading
from profiler_server.analysis.data.feeding import Feed, read_feeds
from profiler_server.analysis.data.fetches import read_receiving
from profiler_server.analysis.data.loop import Cores, measure_loop
from profiler_server.analysis.data.replicas import read_stages, summarize_transforms
from profiler_server.analysis.device.device import summarize_device
from profiler_server.analysis.memory.memory import find_peak_share
from profiler_server.analysis.memory.resources import read_held_clock, summarize_host
from profiler_server.analysis.operators.avoidable import find_slow_convolutions, find_wide_shares, read_anomaly_work
from profiler_server.analysis.operators.kernels import find_full_precision
from profiler_server.analysis.operators.kinds import find_kinds
from profiler_server.analysis.operators.operators import find_dispatch_share, find_phase_shares
from profiler_server.analysis.ranks.ranks import RankSummary, count_parallel_devices, read_ddp, summarize_ranks
from profiler_server.analysis.recorded_facts import (
    read_logged,
    read_model_calls,
    read_repeated_backwards,
    read_repeated_nodes,
    read_sampler,
    read_source_lines,
    read_spare_nodes,
    read_unused_gradients,
)
from profiler_server.analysis.replay.critical import find_critical_path
from profiler_server.analysis.replay.reading import replay_rank
from profiler_server.analysis.stacks.line_work import part_steps, read_repeated_time, read_unused_share
from profiler_server.analysis.stacks.stacks import Stacks, read_lines, read_stacks
from profiler_server.analysis.steps.interruptions import read_interruptions, summarize_compiles
from profiler_server.analysis.steps.step_figures import count_micro_batches
from profiler_server.analysis.what_if.pipelines import judge_run
from profiler_server.diagnosis.bottleneck import find_limit, measure_demand, read_readiness
from profiler_server.diagnosis.deriving import derive, name_samples
from profiler_server.diagnosis.limits.course import DRIFT_PARTS
from profiler_server.facts.case import Case, Lines
from profiler_server.facts.job import Peer, Ranks, RankVerdict, Slow
from profiler_server.facts.loading import BatchTimes, LoaderArguments, Loading, SamplerTimes
from profiler_server.facts.machine import (
    Device,
    DeviceEntry,
    HeldClock,
    Host,
    HostLoad,
    HostWaits,
    RankNotes,
    RecordingCost,
    RepeatedNodes,
    Replayed,
)
from profiler_server.facts.steps import (
    ChosenSteps,
    Kinds,
    ModelCalls,
    NamedFunction,
    Sampled,
    SlowConvolutions,
    Steps,
    UnusedGradients,
)
from profiler_server.format import speak_of

_log = logging.getLogger("stepscope")
T = TypeVar("T")
Nodes = TypeVar("Nodes", bound=RepeatedNodes)
MOST_PEERS = 64
_TRACE_CORES = 4
"""Cores assumed for a host that a trace does not describe. The number is low, so that no gain is promised that needs
many cores."""


def measure_case(run: Run, rank: RankRun) -> Case | None:
    """Return the facts of one rank for the rules; None if the rank has no step to judge.

    If a run only infers, its evaluation batches are its steps. Raises TableMissingError, TableBrokenError or
    NewerSchemaError if the steps cannot be read. Any other damaged table counts as not collected.
    """
    manifest = rank.manifest
    rows = count_as_steps(_drop_empty(rank.table("steps")))
    train, selection = train_steps(rows.steps), select_steps(rows.steps)
    if not selection.kept.any():
        return None
    host, *sixths = _read_loads(run, rank, train, selection)
    device = Device(
        entries=tuple(_take(DeviceEntry, entry) for entry in manifest.devices),
        summary=_ask_device(rank, summarize_device),
        full_precision_frac=_ask_device(rank, find_full_precision),
        dispatch_frac=_ask_device(rank, find_dispatch_share),
        replay=_read_replay(rank),
        memory_peak_frac=_ask_device(rank, find_peak_share),
        held_clock=_read_held_clock(rank, train),
        host_waits=_read_waits(rank),
    )
    feeds = read_feeds(rank, train)
    with speak_of(rows.noun):
        loadings = [_measure_loading(rank, feed, train, selection, device, host) for feed in feeds]
    found = sorted((entry for entry in loadings if entry is not None), key=lambda entry: -entry.wait_ns)
    if not found:
        return None
    stacks = read_or(None, read_stacks, rank)
    steps = _measure_steps(rank, rows, train, selection)
    case = Case(
        manifest=replace(_take(RankNotes, manifest), overhead=_take(RecordingCost, manifest.overhead)),
        steps=steps,
        loading=found[0],
        device=device,
        host=Host(found[0].loop.model.cores, host, *sixths),
        ranks=_measure_ranks(run, rank.rank, manifest.facts),
        other_loadings=tuple(found[1:]),
        stacks=_name_samples(rank, stacks, found[0]),
        lines=_find_lines(rank, stacks, steps),
        anomaly=read_or(None, read_anomaly_work, rank) if manifest.facts.get("anomaly_mode") is True else None,
        unused=_measure_unused(rank),
        repeated=_measure_repeated(rank, read_repeated_nodes(manifest.facts)),
        spare=_measure_repeated(rank, read_spare_nodes(manifest.facts)),
        swept=_measure_repeated(rank, read_repeated_backwards(manifest.facts)),
        calls=_measure_calls(rank),
    )
    return _derive(rank, case)


def _derive(rank: RankRun, case: Case) -> Case:
    """Return the case with its derived facts, or with its measured facts only if deriving fails."""
    text = "What follows from the facts of %s is left out: %r"
    return attempt(lambda: derive(case), lambda error: _log.warning(text, rank.folder, error)) or case


def _ask_device(rank: RankRun, measure: Callable[[RankRun], T | None]) -> T | None:
    return read_or(None, measure, rank) if rank.manifest.devices else None


def _take(kind: type[T], entry: Any) -> T:
    """Return an object of type `kind` whose fields are copied from the fields of the same names of `entry`."""
    return kind(**{field.name: getattr(entry, field.name) for field in fields(kind)})  # type: ignore[arg-type]


def _name_samples(rank: RankRun, stacks: Stacks | None, loading: Loading) -> Sampled | None:
    loader = loading.loader.id if loading.loader is not None else None
    keeps_tracebacks = rank.manifest.facts.get("anomaly_mode") is True
    return None if stacks is None else name_samples(stacks, loader, keeps_tracebacks)


def _find_lines(rank: RankRun, stacks: Stacks | None, steps: Steps) -> Lines | None:
    if stacks is None or not steps.mean_ns:
        return None
    shares = {name: time_ns / steps.mean_ns for name, time_ns in steps.phases_ns.items() if time_ns > 0}
    return read_lines(rank, stacks, shares, read_source_lines(rank.manifest.facts), part_steps(steps))


def _measure_unused(rank: RankRun) -> UnusedGradients | None:
    unused = read_unused_gradients(rank.manifest.facts)
    return replace(unused, backward_frac=read_or(None, read_unused_share, rank, unused)) if unused is not None else None


def _measure_repeated(rank: RankRun, found: Nodes | None) -> Nodes | None:
    return replace(found, time_ns=read_or(None, read_repeated_time, rank, found)) if found is not None else None


def _measure_calls(rank: RankRun) -> tuple[ModelCalls, ...]:
    return tuple(
        replace(found, wide_fracs=read_or(None, find_wide_shares, rank, found.width, found.rows))
        if found.padded and found.width
        else found
        for found in read_model_calls(rank.manifest.facts)
    )


def _drop_empty(rows: pa.Table) -> pa.Table:
    """Return the rows without those of zero length, such as steps of a trace that lost its durations."""
    return rows.filter(pc.greater(rows["duration_ns"], 0))


def _measure_steps(rank: RankRun, rows: StepRows, train: pa.Table, selection: StepSelection) -> Steps:
    every = rows.every
    others = every.slice(0, 0) if rows.infers else every.filter(pc.invert(is_kind(every, "train")))
    return Steps(
        rows=train,
        other_rows=others,
        selection=_take(ChosenSteps, selection),
        mean_ns=float(selection.duration_ns[selection.kept].mean()),
        phases_ns=_average_phases(train, selection.kept),
        regular_phases_ns=_average_phases(train, selection.regular),
        interruptions=read_interruptions(rank),
        compiles=summarize_compiles(rank),
        logged=read_logged(rank.manifest.facts),
        noun=rows.noun,
        micro_batches=count_micro_batches(rows.steps),
        slow_convolutions=read_or(SlowConvolutions(), find_slow_convolutions, rank),
        kinds=read_or(Kinds(), find_kinds, rank),
        operator_fracs=read_or({}, find_phase_shares, rank),
    )


def _average_phases(train: pa.Table, chosen: Mask) -> Mapping[str, float]:
    return {name: float(read_integers(train, f"{name}_ns")[chosen].mean()) for name in PHASE_NAMES}


def _measure_loading(
    rank: RankRun, feed: Feed, train: pa.Table, selection: StepSelection, device: Device, host: HostLoad | None
) -> Loading | None:
    manifest = rank.manifest
    fed = next((entry for entry in manifest.loaders if entry.id == feed.loader), None)
    # An iterable that the script watches has no arguments to change.
    loader, watched = (None, fed) if fed is not None and fed.watched else (fed, None)
    batches = read_or(None, _read_batches, rank, loader) if loader is not None else None
    # In a trace a step lasts until its device work ends, and the wait for data may run beside that work.
    summary = device.summary
    busy_frac = (summary.utilization_frac or 0.0) if summary is not None and manifest.is_trace else 0.0
    model_of = loader or _find_reader(watched) or _assume_loader(manifest)
    made = batches if watched is None else estimate_batches(feed, selection, watched)
    sampler = read_sampler(manifest.facts, loader.id) if loader is not None else None
    served = _leave_sampling(feed, sampler)
    if made is not None and sampler is not None:
        made = made.without_sampling(sampler.batch_ns)
    loop = measure_loop(served, selection, model_of, made, _find_cores(manifest, host), busy_frac)
    if loop is None:
        return None
    wait_ns = feed.mean_wait_ns(selection.regular)
    if manifest.is_trace and device.shares is not None:
        wait_ns = min(wait_ns, device.shares.idle * loop.regular_step_ns)  # otherwise device work hides the wait
    demand = measure_demand(feed, selection)
    if manifest.is_trace:  # it is unknown how much of the wait in the mean step runs beside device work
        regular_frac = wait_ns / loop.regular_step_ns if loop.regular_step_ns else 0.0
        demand = replace(demand, wait_frac=regular_frac, regular_frac=regular_frac)
    readiness = read_readiness(rank, loader, train.filter(pa.array(selection.regular)))
    return Loading(
        loader=_take(LoaderArguments, loader) if loader is not None else None,
        readiness=readiness,
        batches=batches,
        bottleneck=find_limit(rank, loader, readiness, demand, batches, host),
        transforms=_read_transforms(rank, loader),
        loop=loop,
        wait_ns=wait_ns,
        mean_wait_ns=feed.mean_wait_ns(selection.kept),
        watched=_take(LoaderArguments, watched) if watched is not None else None,
        sampler=sampler,
        reading=read_reading(rank, loader.id) if loader is not None and batches is not None else None,
    )


def _leave_sampling(feed: Feed, sampler: SamplerTimes | None) -> Feed:
    """Return the feed with waits shortened by the time of the sampler, which runs on the recorded thread anyway."""
    if sampler is None:
        return feed
    sampled_ns = (sampler.batch_ns * feed.fetches).astype(np.int64)
    return replace(feed, wait_ns=np.maximum(feed.wait_ns - sampled_ns, 0))


def _find_reader(watched: Loader | None) -> Loader | None:
    """Return the watched iterable if the recorded thread makes its items itself, as in a loader without workers; else
    None."""
    return watched if watched is not None and watched.reads_ahead is False else None


def _assume_loader(manifest: RankManifest) -> Loader | None:
    """Return a loader without workers if a trace shows that the training process made its batches itself; else None.

    The wait for a batch is then the time to make the batch.
    """
    return Loader(0, "", "map") if manifest.facts.get("data_loader") == "single_process" else None


def _read_batches(rank: RankRun, loader: Loader) -> BatchTimes | None:
    batches = read_batches(rank, loader.id)
    if batches is None or not loader.num_workers:
        return batches
    return replace(batches, receiving=read_receiving(rank, loader.id))


def _read_host(run: Run, rank: RankRun, start_ns: int, end_ns: int) -> HostLoad | None:
    """Return the load of the host's processors between two times; None if not sampled.

    `others` of the result has only cores that other programs took from this run. Other ranks of the run on this host do
    not count as other programs, and neither do programs on cores that the run may not use.
    """
    load = read_or(None, summarize_host, rank, start_ns, end_ns)
    if load is None:
        return None
    manifest = rank.manifest
    spare = 0.0 if load.usable is not None else _count_spare(manifest)
    own = sum(
        _count_cores(run.rank(other), manifest.host, start_ns, end_ns)
        for other in run.ranks[:MOST_PEERS]
        if other != rank.rank
    )
    others = max(load.others - own, 0.0)
    return replace(load, others=max(others - spare, 0.0), others_anywhere=others)


def _count_spare(manifest: RankManifest) -> float:
    return max((manifest.cpu_count or 0) - manifest.usable_cores, 0.0) if manifest.usable_cores else 0.0


def _count_cores(rank: RankRun, host: str, start_ns: int, end_ns: int) -> float:
    load = read_or(None, lambda: summarize_host(rank, start_ns, end_ns) if rank.manifest.host == host else None)
    return load.workers + (load.process or 0.0) if load is not None else 0.0


def _read_loads(run: Run, rank: RankRun, train: pa.Table, selection: StepSelection) -> list[HostLoad | None]:
    """Return the processor load during all steps, and during the first and the last sixth of the regular steps."""
    starts = read_integers(train, "start_ns")
    ends = starts + selection.duration_ns
    parts = np.array_split(np.flatnonzero(selection.regular), DRIFT_PARTS)
    spans = [(0, -1), *((part[0], part[-1]) for part in (parts[0], parts[-1]) if len(part))]
    return [_read_host(run, rank, int(starts[first]), int(ends[last])) for first, last in spans]


def _read_held_clock(rank: RankRun, train: pa.Table) -> HeldClock | None:
    starts = read_integers(train, "start_ns")
    return read_held_clock(rank, int(starts[0]), int(starts[-1])) if rank.manifest.devices else None


def _read_replay(rank: RankRun) -> Replayed | None:
    """Return the replay of a rank's window; None without a device, or if it fails, so that other facts are kept."""
    if not rank.manifest.devices:
        return None
    text = "The window of %s cannot be replayed: %r"
    return attempt(lambda: replay_rank(rank), lambda error: _log.warning(text, rank.folder, error))


def _read_waits(rank: RankRun) -> HostWaits | None:
    """Return the device's waits for the host and their causes; None if unknown, or if finding the causes fails."""
    if not rank.manifest.devices:
        return None
    text = "The critical path of %s cannot be found: %r"
    path = attempt(lambda: find_critical_path(rank), lambda error: _log.warning(text, rank.folder, error))
    return None if path is None else path.host_waits


def _find_cores(manifest: RankManifest, host: HostLoad | None) -> Cores:
    """Return the usable cores, the cores that training needs, and the load of the host. Training on processors needs
    one core per thread, training on a device one core."""
    unknown = _TRACE_CORES if manifest.is_trace else 1
    usable = manifest.usable_cores or float(manifest.cpu_count or unknown)
    training = 1.0 if manifest.devices else float(manifest.torch_threads or 1)
    return Cores(usable, min(training, usable), not manifest.devices, host)


def _read_transforms(rank: RankRun, loader: Loader | None) -> tuple[tuple[str, float], ...]:
    if loader is None or not find_files(rank.folder, "stages"):
        return ()
    stages = read_or(None, read_stages, rank, loader.id)
    return () if stages is None else tuple((entry.name, entry.share_frac) for entry in summarize_transforms(stages))


def _measure_ranks(run: Run, own: int, facts: Mapping[str, Any]) -> Ranks:
    if len(run.ranks) < 2:
        return Ranks(run.manifest.world_size, (), ddp=read_ddp(facts), parallel_devices=count_parallel_devices(facts))
    ranks = summarize_ranks(run)
    peers = tuple(Peer(rank.rank, rank.phases_ns) for rank in ranks if rank.steps and rank.rank != own)
    verdict = judge_run(run, ranks)
    return Ranks(
        max(run.manifest.world_size, len(run.ranks)),
        peers,
        verdict,
        read_ddp(facts),
        count_parallel_devices(facts),
        _is_sharded(ranks),
        _find_culprit(run, verdict, [rank.rank for rank in ranks if rank.steps]),
    )


def _find_culprit(run: Run, verdict: RankVerdict, ranks: Sequence[int]) -> NamedFunction | None:
    """Return the function that takes most of the phase that delays a slow rank most; None if unknown, or if another
    rank spends this phase in the same function."""
    if not isinstance(verdict, Slow):
        return None
    slow = verdict.comparison.latest
    if not slow.causes or slow.causes[0].name not in PHASE_NAMES:
        return None
    found = _find_dominant(run, slow.rank, slow.causes[0].name)
    if found is None or found.caller:
        return None
    other = next((rank for rank in ranks if rank not in verdict.culprits), None)
    beside = _find_dominant(run, other, slow.causes[0].name) if other is not None else None
    return None if beside is not None and beside.function == found.function else found


def _find_dominant(run: Run, rank: int, phase: str) -> NamedFunction | None:
    stacks = read_or(None, read_stacks, run.read_rank(rank))
    return None if stacks is None else stacks.phase(phase).dominant


def _is_sharded(ranks: Sequence[RankSummary]) -> bool:
    names = {name.lower().replace("_", "") for rank in ranks[:1] if rank.calls for _, name in rank.calls.kinds}
    return any("reducescatter" in name for name in names) and any("allgather" in name for name in names)
