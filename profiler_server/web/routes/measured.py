"""Routes with measurements of a run: its queues, stages and workers, its ranks side by side, its memory at a moment."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pyarrow.compute as pc
from fastapi import APIRouter, Query
from fastapi import Path as InPath
from starlette.responses import Response

from collector.format.timeline_rows import keep_workers
from profiler_server.analysis.data import queues
from profiler_server.analysis.data.queues import QueueKey, sum_queues
from profiler_server.analysis.data.replicas import read_stages, summarize_replicas, summarize_transforms
from profiler_server.analysis.data.stages import read_counted_steps, share_steps, sum_stages
from profiler_server.analysis.memory.memory import find_row, list_live, read_memory, sum_operators
from profiler_server.analysis.ranks.collectives import summarize_collectives
from profiler_server.analysis.ranks.ranks import RankSummary, read_device, summarize_ranks
from profiler_server.analysis.selection import Selection, choose_workers
from profiler_server.analysis.what_if.pipelines import judge_run
from profiler_server.facts.machine import DeviceTimes
from profiler_server.report.all_ranks import list_verdict
from profiler_server.report.schema import pick
from profiler_server.web.answers import BadQueryError, send_json
from profiler_server.web.parameters import LARGEST_STEP, PageNumber, RankOf, RunId, Workers, select_page
from profiler_server.web.services import ServicesOf

ROUTER = APIRouter(prefix="/api/v1/runs/{run_id:path}")

Loader = Annotated[int | None, Query(ge=-1, le=9_999, description="DataLoader; -1 for a queue of the user's own.")]
SampleColumn = Literal["step", "start_ns", "depth", "-step", "-start_ns", "-depth"]


@ROUTER.get("/queues", tags=["data pipeline"], summary="Queues with mean depth, usage and empty share")
def list_queues(rank: RankOf, loader: Loader = None) -> Response:
    """List the queues; empty for a run without queues, such as one with num_workers=0."""
    samples = queues.read_queues(rank)
    rows = []
    for key in queues.list_queues(samples):
        if loader is None or loader == _number(key):
            summary = sum_queues(queues.of_queue(samples, key))[0]
            rows.append({"loader": _number(key), **pick(summary), "name": key.name})
    return send_json({"queues": rows})


@ROUTER.get("/queues/{name}", tags=["data pipeline"], summary="Samples of one queue")
def list_samples(
    name: Annotated[str, InPath(max_length=200)],
    rank: RankOf,
    loader: Loader = None,
    first_step: Annotated[int, Query(ge=0, le=LARGEST_STEP)] = 0,
    last_step: Annotated[int, Query(ge=0, le=LARGEST_STEP)] = LARGEST_STEP,
    sort: Annotated[SampleColumn, Query()] = "start_ns",
    page: PageNumber = 1,
    size: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    """List the samples of a queue. 400 if the run has no queue of that name."""
    samples = queues.read_queues(rank)
    key = _find_queue(queues.list_queues(samples), name, loader)
    samples = queues.of_queue(samples, key)
    inside = pc.and_(pc.greater_equal(samples["step"], first_step), pc.less_equal(samples["step"], last_step))
    selection = Selection(sort.removeprefix("-"), sort.startswith("-"), "", page, size)
    found, place = select_page(samples.filter(inside), selection, ("start_ns",))
    rows = found.rows.drop_columns(["queue", "loader"]).to_pylist()
    return send_json({"queue": name, "loader": _number(key), **place, "rows": rows})


@ROUTER.get("/stages", tags=["data pipeline"], summary="Stages, workers and transforms of the data pipeline")
def list_stages(rank: RankOf, loader: Loader = None, workers: Workers = None) -> Response:
    """List the stages of some workers, or of all. Stages of other processes are always included."""
    stages = read_stages(rank, loader)
    chosen = choose_workers((rank,), workers)
    if chosen is not None:
        stages = keep_workers(stages, chosen)
    steps, summed = read_counted_steps(rank), sum_stages(stages)
    answer = {
        "stages": summed if steps is None else share_steps(summed, stages, steps),
        "workers": summarize_replicas(stages),
        "transforms": summarize_transforms(stages),
    }
    return send_json(answer)


def _find_queue(keys: tuple[QueueKey, ...], name: str, loader: int | None) -> QueueKey:
    for key in keys:
        if key.name == name and (loader is None or loader == _number(key)):
            return key
    there = ", ".join(sorted({key.name for key in keys})) or "none"
    raise BadQueryError(f"This run has no queue {name!r} of that loader; it has: {there}")


def _number(key: QueueKey) -> int:
    return -1 if key.loader is None else key.loader


_LATEST_NS = 2**62


@ROUTER.get(
    "/ranks",
    tags=["ranks and memory"],
    summary="Mean step, phases, device times and collectives of every rank; the slowest",
)
def compare_ranks(run_id: RunId, services: ServicesOf) -> Response:
    """Compare the ranks. Times are ns. `straggler` is null with fewer than two ranks; `reason` is why a rank has no
    figures."""
    run = services.catalog.open(run_id)
    ranks = summarize_ranks(run)
    verdict = list_verdict(judge_run(run, ranks))
    answer = {
        "ranks": [_describe_rank(rank, read_device(run.read_rank(rank.rank))) for rank in ranks],
        "straggler": verdict["straggler"],
        "judgement": verdict,
        "collectives": summarize_collectives(ranks),
    }
    return send_json(answer)


def _describe_rank(rank: RankSummary, device: DeviceTimes | None) -> dict[str, Any]:
    names = ("rank", "host", "state", "steps", "step_ns", "own_ns", "noise_ns", "phases_ns", "reason")
    times = ("total_ns", "computation_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
    return {
        **{name: getattr(rank, name) for name in names},
        "device": {name: getattr(device, name) for name in times} if device is not None else None,
    }


@ROUTER.get(
    "/memory",
    tags=["ranks and memory"],
    summary="Peak, change by operator, and the blocks alive at a moment, per device",
)
def describe_memory(
    rank: RankOf,
    device: Annotated[
        int | None, Query(ge=-1, le=65_535, description="Device; -1 is the host. All by default.")
    ] = None,
    at_ns: Annotated[int | None, Query(ge=0, le=_LATEST_NS, description="Moment; the peak by default.")] = None,
    most: Annotated[int, Query(ge=0, le=10_000, description="Most blocks that are listed, the largest first.")] = 100,
) -> Response:
    """Describe the memory of one device, or of all. 400 for a device without allocations, 404 if none were recorded."""
    traces = read_memory(rank)
    chosen = [trace for trace in traces if device is None or trace.device == device]
    if device is not None and not chosen:
        there = ", ".join(str(trace.device) for trace in traces) or "none"
        raise BadQueryError(f"This run has no allocations on device {device}; it has: {there}")
    rows = []
    for trace in chosen:
        row = trace.peak_row if at_ns is None else find_row(trace, at_ns)
        rows.append(
            {
                "device": trace.device,
                "events": len(trace),
                "peak_bytes": trace.peak_bytes,
                "peak_reserved_bytes": trace.peak_reserved_bytes,
                "live": pick(list_live(trace, row, rank.manifest.windows, most)),
                "operators": sum_operators(trace),
            }
        )
    return send_json({"devices": rows})
