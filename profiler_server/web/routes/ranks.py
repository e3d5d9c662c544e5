"""The ranks of a run side by side, and what was alive in memory at a moment."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from profiler_server.analysis.memory.memory import find_row, list_live, read_memory, sum_operators
from profiler_server.analysis.ranks.collectives import summarize_collectives
from profiler_server.analysis.ranks.ranks import RankSummary, read_device, summarize_ranks
from profiler_server.analysis.what_if.pipelines import judge_run
from profiler_server.facts.machine import DeviceTimes
from profiler_server.report.all_ranks import list_verdict
from profiler_server.web.answers import send_json
from profiler_server.web.errors import BadQueryError
from profiler_server.web.parameters import RankOf, RunId
from profiler_server.web.services import ServicesOf

ROUTER = APIRouter(prefix="/api/v1/runs/{run_id:path}", tags=["ranks and memory"])
_LATEST_NS = 2**62


@ROUTER.get("/ranks", summary="Mean step, phases, device times and collectives of every rank; the slowest")
def compare_ranks(run_id: RunId, services: ServicesOf) -> Response:
    """Times are ns. `straggler` is null with fewer than two ranks; `reason` says why a rank has no figures."""
    run = services.catalog.open(run_id)
    ranks = summarize_ranks(run)
    verdict = list_verdict(judge_run(run, ranks))
    answer = {
        "ranks": [_describe(rank, read_device(run.read_rank(rank.rank))) for rank in ranks],
        "straggler": verdict["straggler"],
        "judgement": verdict,
        "collectives": summarize_collectives(ranks),
    }
    return send_json(answer)


def _describe(rank: RankSummary, device: DeviceTimes | None) -> dict[str, Any]:
    names = ("rank", "host", "state", "steps", "step_ns", "own_ns", "noise_ns", "phases_ns", "reason")
    times = ("total_ns", "computation_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
    return {
        **{name: getattr(rank, name) for name in names},
        "device": {name: getattr(device, name) for name in times} if device is not None else None,
    }


@ROUTER.get("/memory", summary="Peak, change by operator, and the blocks alive at a moment, per device")
def describe_memory(
    rank: RankOf,
    device: Annotated[
        int | None, Query(ge=-1, le=65_535, description="Device; -1 is the host. All by default.")
    ] = None,
    at_ns: Annotated[int | None, Query(ge=0, le=_LATEST_NS, description="Moment; the peak by default.")] = None,
    most: Annotated[int, Query(ge=0, le=10_000, description="Most blocks that are listed, the largest first.")] = 100,
) -> Response:
    """Answer 400 for a device without allocations, 404 where none were recorded."""
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
                "live": dataclasses.asdict(list_live(trace, row, rank.manifest.windows, most)),
                "operators": sum_operators(trace),
            }
        )
    return send_json({"devices": rows})
