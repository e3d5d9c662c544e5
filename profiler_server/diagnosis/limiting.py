"""What limits the steps that one DataLoader feeds: measured here for the verdict and for every page, so that they agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from collector.format.rank import read_step_rows
from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from collector.format.schema.manifest import Loader
from collector.format.steps import StepSelection, read_integers, select_steps, train_steps
from profiler_server.analysis.data.batches import read_batches
from profiler_server.analysis.data.feeding import Feed, read_feeds
from profiler_server.analysis.data.fetches import read_making, read_own_making
from profiler_server.analysis.data.loop import count_batches
from profiler_server.analysis.data.queues import read_queues, summarize_readiness
from profiler_server.analysis.data.stages import load_workers
from profiler_server.analysis.memory.resources import summarize_host
from profiler_server.diagnosis.bottleneck import find_bottleneck
from profiler_server.facts.loading import BatchTimes, Bottleneck, Readiness
from profiler_server.facts.machine import HostLoad


@dataclass(frozen=True)
class Demand:
    """What the steps ask of a loader: batches per step, and the part of the step that waits for them, of the mean step and
    of a regular one, which takes `regular_ns`."""

    fetches: float
    regular_ns: float
    wait_frac: float
    regular_frac: float


def measure_demand(feed: Feed, selection: StepSelection) -> Demand:
    """Measure it for steps of which some are in the average."""
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
    """Name what limits the steps. `host` is the load while they ran, `batches` what the work on a batch took."""
    work = {stage: float(values.mean()) for stage, values in batches.stages_ns.items()} if batches else {}
    paid_ns = (loader.num_workers if loader else 0) * demand.regular_ns
    busy_frac = sum(work.values()) * demand.fetches / paid_ns if paid_ns else 0.0
    load = load_workers(busy_frac, batches.cpu_frac if batches else None, host)
    if loader is not None:
        try:
            making = read_making(rank, loader.id) if loader.num_workers else None
            own = None if loader.num_workers else read_own_making(rank, loader.id)
            load = replace(load, making=making, own=own)
        except RunError:
            pass
    return find_bottleneck(readiness, work, demand.wait_frac, load, demand.regular_frac)


def read_limit(rank: RankRun, number: int | None) -> Bottleneck:
    """Measure the limit of the steps that the loader of this number feeds. Raises as `RankRun.table` does."""
    rows = read_step_rows(rank).steps
    train, selection = train_steps(rows), select_steps(rows)
    feed = next((feed for feed in read_feeds(rank, train) if feed.loader == number), None)
    if feed is None or not selection.kept.any():
        return Bottleneck(None, "No step waits for this loader.")
    loader = next((entry for entry in rank.manifest.loaders if entry.id == number and not entry.watched), None)
    starts = read_integers(train, "start_ns")
    host = _read_host(rank, int(starts[0]), int(starts[-1] + selection.duration_ns[-1]))
    readiness = read_readiness(rank, loader, train.filter(pa.array(selection.regular)))
    batches = read_batches(rank, loader.id) if loader is not None else None
    return find_limit(rank, loader, readiness, measure_demand(feed, selection), batches, host)


def read_readiness(rank: RankRun, loader: Loader | None, steps: pa.Table) -> tuple[Readiness, ...]:
    """Return how often the next batch was there in these steps; empty where that was not sampled."""
    try:
        samples = read_queues(rank)
    except RunError:
        return ()
    if loader is None or not samples.num_rows:
        return ()
    return summarize_readiness(samples, loader.id, steps)


def _read_host(rank: RankRun, start_ns: int, end_ns: int) -> HostLoad | None:
    try:
        return summarize_host(rank, start_ns, end_ns)
    except RunError:
        return None
