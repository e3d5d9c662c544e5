"""Thresholds of how input-bound a step is, and what queues and workers say of it."""

from __future__ import annotations

from collections.abc import Mapping

from profiler_server.diagnosis.bottleneck import find_bottleneck, find_own_bottleneck
from profiler_server.diagnosis.readings import Pipeline, judge_wait, read_queues_plainly
from profiler_server.facts.loading import Bottleneck, Readiness
from profiler_server.facts.pipeline import Making, OwnMaking, OwnStage, QueueSummary, StageSummary, WorkerLoad
from tests.support import facts as make
from tests.unit.diagnosis.edges.base import Edge, starving

WORK = {"read": 5.0, "collate": 40.0}


def own_stages(busy: float, output_wait: float = 0.0) -> list[OwnStage]:
    return [OwnStage(StageSummary("decode", 1, 9, 1.0, busy, 0.0, output_wait), (), ())]


def judge_late(not_ready: float, late_wait: float = 0.0) -> str:
    return find_bottleneck([Readiness("q", not_ready, 0.0, late_wait)], WORK, 0.4).cause


def judge_ready(load: WorkerLoad) -> tuple[str | None, str]:
    found = find_bottleneck([Readiness("q", 0.0, 0.0)], WORK, 0.4, load)
    return found.stage, found.cause


def read_usage(usage: float) -> str:
    host, device = QueueSummary("w", 4, 2, usage, 0.0, 99), QueueSummary("p", 4, 2, 0.1, 0.9, 99)
    return read_queues_plainly(Pipeline(host, device, 0.4, (), Bottleneck("pin", "", "making")))[0].title


EDGES: Mapping[str, Edge] = {
    "MODERATE_WAIT_FRAC": Edge(0.05, lambda x: judge_wait(x, True).tone != "good"),
    "HIGH_WAIT_FRAC": Edge(0.20, lambda x: judge_wait(x, True).tone == "bad"),
    "INPUT_WAIT_FRAC": Edge(0.08, lambda x: make.speaks(starving(x), "slow_read")),
    "STARVED_WAIT_FRAC": Edge(0.10, lambda x: starving(x).loading.is_starved),
    "LATE_FRAC": Edge(
        0.15,
        lambda x: make.with_loading(starving(0.4, None), readiness=(Readiness("q", x, 0.0),)).loading.is_starved,
    ),
    "EMPTY_QUEUE_FRAC": Edge(0.30, lambda x: judge_late(x) == "making"),
    "FULL_QUEUE_FRAC": Edge(0.70, lambda x: read_usage(x) == "The transfer is the limit"),
    "TIMED_WAIT_FRAC": Edge(
        0.60,
        lambda x: find_bottleneck((), WORK, 0.4, WorkerLoad(0, None, own=OwnMaking(100.0, 100 * x))).stage == "collate",
    ),
    "UNMADE_WAIT_FRAC": Edge(0.50, lambda x: judge_ready(WorkerLoad(0.2, 0.9, making=Making(0.6, x)))[1] == "making"),
    "LATE_WAIT_FRAC": Edge(0.50, lambda x: judge_late(0.1, x) == "making"),
    "QUEUED_FRAC": Edge(0.25, lambda x: judge_ready(WorkerLoad(0.2, 0.9, x))[1] == "processor"),
    "HANDOVER_BUSY_FRAC": Edge(0.50, lambda x: judge_ready(WorkerLoad(x, 0.9))[0] == "collate"),
    "BUSY_WORKERS_FRAC": Edge(0.95, lambda x: judge_ready(WorkerLoad(x, 0.9))[1] == "making"),
    "COMPUTING_FRAC": Edge(0.20, lambda x: judge_ready(WorkerLoad(0.7, x))[0] == "collate"),
    "OWN_BUSY_FRAC": Edge(0.50, lambda x: find_own_bottleneck(own_stages(x)).stage == "decode"),
    "OWN_WAIT_FRAC": Edge(0.20, lambda x: find_own_bottleneck(own_stages(0.7, x)).stage is None),
}
