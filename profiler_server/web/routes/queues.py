"""The data pipeline of a run: its queues with their samples, its stages and workers."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Literal

import pyarrow.compute as pc
from fastapi import APIRouter, Query
from fastapi import Path as InPath
from starlette.responses import Response

from collector.format.timeline_rows import keep_workers
from profiler_server.analysis.data import queues
from profiler_server.analysis.data.queues import QueueKey, sum_queues
from profiler_server.analysis.data.replicas import read_stages, summarize_replicas, summarize_transforms
from profiler_server.analysis.data.stages import read_counted_steps, share_steps, sum_stages
from profiler_server.analysis.selection import Selection, choose_workers, select_rows
from profiler_server.web.answers import send_json
from profiler_server.web.errors import BadQueryError
from profiler_server.web.parameters import LARGEST_STEP, RankOf, Workers, check_page

ROUTER = APIRouter(prefix="/api/v1/runs/{run_id:path}", tags=["data pipeline"])

Loader = Annotated[int | None, Query(ge=-1, le=9_999, description="DataLoader; -1 for a queue of the user's own.")]
SampleColumn = Literal["step", "start_ns", "depth", "-step", "-start_ns", "-depth"]


@ROUTER.get("/queues", summary="Queues with mean depth, usage and empty share")
def list_queues(rank: RankOf, loader: Loader = None) -> Response:
    """Answer with an empty list for a run without queues, such as one with num_workers=0."""
    samples = queues.read_queues(rank)
    rows = []
    for key in queues.list_queues(samples):
        if loader is None or loader == _number(key):
            summary = sum_queues(queues.of_queue(samples, key))[0]
            rows.append({"loader": _number(key), **dataclasses.asdict(summary), "name": key.name})
    return send_json({"queues": rows})


@ROUTER.get("/queues/{name}", summary="Samples of one queue")
def list_samples(
    name: Annotated[str, InPath(max_length=200)],
    rank: RankOf,
    loader: Loader = None,
    first_step: Annotated[int, Query(ge=0, le=LARGEST_STEP)] = 0,
    last_step: Annotated[int, Query(ge=0, le=LARGEST_STEP)] = LARGEST_STEP,
    sort: Annotated[SampleColumn, Query()] = "start_ns",
    page: Annotated[int, Query(ge=1, le=1_000_000_000)] = 1,
    size: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    """Answer 400 where the run has no queue of that name."""
    samples = queues.read_queues(rank)
    key = _find_queue(queues.list_queues(samples), name, loader)
    samples = queues.of_queue(samples, key)
    inside = pc.and_(pc.greater_equal(samples["step"], first_step), pc.less_equal(samples["step"], last_step))
    selection = Selection(sort.removeprefix("-"), sort.startswith("-"), "", page, size)
    selected = select_rows(samples.filter(inside), selection, ("start_ns",))
    check_page(page, selected.pages)
    answer = {
        "queue": name,
        "loader": _number(key),
        "matched": selected.matched,
        "page": selected.page,
        "pages": selected.pages,
        "rows": selected.rows.drop_columns(["queue", "loader"]).to_pylist(),
    }
    return send_json(answer)


@ROUTER.get("/stages", summary="Stages, workers and transforms of the data pipeline")
def list_stages(rank: RankOf, loader: Loader = None, workers: Workers = None) -> Response:
    """Answer with what some workers did, or all; what other processes did is always there."""
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
