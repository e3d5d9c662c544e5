"""Every threshold is driven from just below and just above, through the rule, the reading or the verdict that uses it.

The figures stand here once more on purpose: a threshold that moves by accident fails its test.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from collector.format.schema.manifest import Overhead
from profiler_server.analysis.data.own_pipeline import OwnStage
from profiler_server.analysis.data.pipeline import Readiness, WorkerLoad
from profiler_server.analysis.memory.host import MemoryGrowth
from profiler_server.analysis.ranks.ranks import Straggler
from profiler_server.analysis.results import QueueSummary, StageSummary
from profiler_server.analysis.steps.compiles import CompileEvents
from profiler_server.analysis.steps.interruptions import Held, Interruptions
from profiler_server.diagnosis import limits
from profiler_server.diagnosis.bottleneck import Bottleneck, find_bottleneck, find_own_bottleneck
from profiler_server.diagnosis.facts import Case
from profiler_server.diagnosis.findings import Claim, Effort, Finding, Rule, WhatIf
from profiler_server.diagnosis.judging import judge
from profiler_server.diagnosis.measuring import measure_case
from profiler_server.diagnosis.ranking import _choose, _is_muted, is_sure, is_worth_saying, write_suggestion
from profiler_server.diagnosis.readings import Pipeline, judge_wait, read_queues_plainly
from profiler_server.diagnosis.verdict import find_bound
from tests.support import facts as make
from tests.support.cases import Plant, build_case_run, plan_of
from tests.support.runs import MS

WORK = {"read": 5.0, "collate": 40.0}
STEPS = 120


@cache
def base() -> Case:
    """A healthy run of 120 equal steps of 64 ms with two workers."""
    plan = replace(plan_of(), steps=STEPS)
    with tempfile.TemporaryDirectory() as folder:
        run = build_case_run(Path(folder) / "run", Plant(plan))
        case = measure_case(run, run.rank(0))
    assert case is not None
    selection, everything = case.steps.selection, np.ones(STEPS, np.bool_)
    case = make.with_steps(
        case, selection=replace(selection, kept=everything, regular=everything, detailed=~everything)
    )
    return make.with_durations(case, lambda durations: np.full(len(durations), 64.0 * MS))


def starving(share: float = 0.4, stage: str | None = "read") -> Case:
    """The base, waiting for data for a share of the step, for batches that are late."""
    case = make.with_batches(make.with_wait(base(), share), 100.0 * MS)
    case = make.with_loading(
        case, bottleneck=Bottleneck(stage, "", "making"), readiness=(Readiness("q", 100, 0.9, 0.0),)
    )
    return make.with_jobs(case, 100.0 * MS, 0.1)


def claim_of(gain_ns: float, effort: Effort = "code") -> Claim:
    finding = Finding("t", "m", "t", "a", "c", "f", (), tier="M")
    rule = Rule("x", "x", effort, lambda case: None, muted_when_input_bound=True)
    step_ns = base().steps.mean_ns - gain_ns
    return Claim(rule, finding, step_ns, step_ns, step_ns, gain_ns, gain_ns)


def own_stages(busy: float, output_wait: float = 0.0) -> list[OwnStage]:
    return [OwnStage(StageSummary("decode", 1, 9, 1.0, busy, 0.0, output_wait), (), ())]


def judge_late(not_ready: float, late_wait: float = 0.0) -> str:
    return find_bottleneck([Readiness("q", 100, not_ready, 0.0, late_wait)], WORK, 0.4).cause


def judge_ready(load: WorkerLoad) -> tuple[str | None, str]:
    found = find_bottleneck([Readiness("q", 100, 0.0, 0.0)], WORK, 0.4, load)
    return found.stage, found.cause


def read_usage(usage: float) -> str:
    host, device = QueueSummary("w", 4, 2, usage, 0.0, 99), QueueSummary("p", 4, 2, 0.1, 0.9, 99)
    return read_queues_plainly(Pipeline(host, device, 0.4, (), Bottleneck("pin", "", "making")))[0].title


def stall(every: int, by_ms: float, count: int = 1000) -> Case:
    def lengthen(durations: np.ndarray) -> np.ndarray:
        durations[every - 1 :: every][:count] += by_ms * MS
        return durations

    return make.with_durations(base(), lengthen)


def stall_at(places: list[int]) -> Case:
    def lengthen(durations: np.ndarray) -> np.ndarray:
        durations[places] += 200.0 * MS
        return durations

    return make.with_durations(base(), lengthen)


def drift(growth: float, steps: int = STEPS, falls: int = 0) -> Case:
    """Steps that grow in sixths; `falls` of the sixths in the middle do not grow."""
    levels = np.linspace(1.0, 1.0 + growth, 6)
    levels[1 : 1 + falls] = [1.0 - 0.001 * n for n in range(falls)]
    case = make.with_load(make.with_durations(base(), lambda d: d * levels[np.arange(STEPS) * 6 // STEPS]))
    if steps == STEPS:
        return case
    chosen = np.arange(STEPS) % 2 == 0
    chosen[np.flatnonzero(~chosen)[: steps - int(chosen.sum())]] = True
    chosen[np.flatnonzero(chosen)[steps:]] = False
    return make.with_steps(case, selection=replace(case.steps.selection, regular=chosen))


def restart(count: int) -> Case:
    first = np.arange(STEPS) % (STEPS // count) == 0 if count else np.zeros(STEPS, np.bool_)
    return make.with_steps(base(), selection=replace(base().steps.selection, first_of_epoch=first))


def warm(extra_ns: float, whole_ns: float) -> Case:
    """A first step that takes so much longer than the others, in a recording of that length."""
    rest = (whole_ns - extra_ns) / STEPS
    case = make.with_durations(base(), lambda d: np.concatenate([[rest + extra_ns], np.full(STEPS - 1, rest)]))
    case = make.with_steps(case, selection=replace(case.steps.selection, warm_up=np.arange(STEPS) == 0))
    return make.with_loop(case, regular_step_ns=rest)


def saving(share: float) -> Case:
    whole = int(base().steps.selection.duration_ns.sum())
    one = np.array([0], np.int64)
    saves = Interruptions(
        (Held("checkpoint", "torch.save"),), one, one, np.array([round(share * whole)], np.int64), one
    )
    return make.with_steps(base(), interruptions=saves)


def saved_stalls(share: float) -> Case:
    """Stalls of 300 ms each, of whose time checkpoints took this share."""
    case = stall(12, 300.0)
    one = np.array([0], np.int64)
    took = np.array([round(share * (STEPS // 12) * 300 * MS)], np.int64)
    return make.with_steps(case, interruptions=Interruptions((Held("checkpoint", "torch.save"),), one, one, took, one))


def evaluating(share: float) -> Case:
    rows = base().steps.rows.slice(0, 1)
    kind = rows.schema.get_field_index("kind")
    whole = int(base().steps.selection.duration_ns.sum())
    rows = make.with_rows(make.with_steps(base(), rows=rows), duration_ns=whole * share / (1 - share)).steps.rows
    evaluation = rows.set_column(kind, "kind", [["eval"]])
    return make.with_steps(base(), other_rows=evaluation)


def growth(levels: tuple[float, ...]) -> Case:
    return make.with_load(base(), growth=MemoryGrowth(levels, 10**9))


def straggling(share: float) -> Case:
    own = base().steps.mean_ns
    found = Straggler(1, own + share * own, own, share, "forward", 0.0, 0.0, 1, True, False)
    return replace(base(), ranks=replace(base().ranks, world_size=2, straggler=found))


def uneven(spread: float, load: float = 0.3) -> Case:
    """Batches that are fast or slow by turns; the median one loads the workers to this share."""
    middle = load * base().loading.loop.own_ns * 2 * (1 - 0.4)
    times = np.array([1 - spread, 1 - spread, 1 + spread, 1 + spread, 1.0]) * np.sqrt(5 / 4)
    times = 1 + (times - times.mean()) / times.std() * spread
    case = make.with_loop(starving(), regular_step_ns=base().loading.loop.own_ns)
    return make.with_batches(make.with_wait(case, 0.4), times / np.median(times) * middle)


def busy_workers(busy: float) -> Case:
    case = make.with_jobs(starving(), 400.0 * MS, 0.1)
    return make.with_batches(case, busy * 2 * case.loading.loop.regular_step_ns)


def lightly_loaded(load: float) -> Case:
    case = make.with_model(starving(), prefetch=1)
    jobs = tuple(
        replace(case.loading.loop.model.batches[0], wall_ns=(20.0 if n % 2 else 200.0) * MS) for n in range(40)
    )
    own = case.loading.loop.regular_step_ns - case.loading.wait_ns
    return make.with_batches(make.with_model(case, batches=jobs), load * 2 * own)


def capped(need: float, demand: float = 1.0) -> Case:
    case = make.with_load(make.with_jobs(starving(), 100.0 * MS, need), system=demand * 4.0)
    return make.with_model(case, workers=4)


def in_memory(sample_ns: float) -> Case:
    case = make.with_loader(make.with_jobs(starving(), sample_ns * 100, 1.0), batch_size=100)
    return make.with_loading(case, batches=None)


def sending(batch_ns: float) -> Case:
    case = make.with_loader(starving(), num_workers=0, batch_size=1)
    return make.with_loading(make.with_jobs(case, batch_ns, 0.1), batches=None)


def steady(count: int) -> Case:
    case = base()
    return make.with_steps(case, selection=replace(case.steps.selection, regular=np.arange(STEPS) < count))


def agreeing(share: float) -> str:
    """Return the words of a verdict with which this share of the steps agrees."""
    case = split_waits(0.3, share)
    return find_bound(case).confidence


def split_waits(wait: float, share: float) -> Case:
    """Let this share of the steps wait for data so long, and the others not at all; in stretches of 25 steps."""
    waits = np.where(np.arange(STEPS) < share * STEPS, wait, 0.0)
    return make.split_step(base(), data_wait=waits)


def recompiled(count: int, share: float) -> Case:
    whole = int(base().steps.selection.duration_ns.sum())
    return make.with_steps(base(), compiles={"recompile": CompileEvents(count, round(share * whole), 1, "f")})


def updating(share: float) -> Case:
    optimizers = {"optimizers": [{"name": "AdamW", "foreach": False, "fused": None}]}
    return make.with_manifest(make.with_share(base(), "optimizer", share), facts=optimizers)


def copying(share: float, pinned: bool) -> Case:
    return make.with_loader(make.with_share(make.with_device(base()), "h2d", share), pin_memory=pinned)


def severity(share: float) -> str:
    return write_suggestion(base(), claim_of(share * base().steps.mean_ns)).severity


def contended(share: float) -> bool:
    case = make.with_loop(base(), contention_frac=0.4)
    return is_sure(case, claim_of(share * base().steps.mean_ns))


def doubtful(share: float) -> bool:
    """Judge a change that shortens this share of the step, gains enough, and is in doubt."""
    claim = claim_of(0.1 * base().steps.mean_ns)
    what_if = WhatIf(lambda model: model, {"gap": share * base().steps.mean_ns})
    return is_worth_saying(base(), replace(claim, sure_gain_ns=0.0, finding=replace(claim.finding, what_if=what_if)))


def short_step(gain_ns: float) -> bool:
    return is_sure(make.with_steps(base(), mean_ns=2.0 * MS), claim_of(gain_ns))


def busier(by: float) -> bool:
    first, last = (replace(make.QUIET, others=others) for others in (0.4, 0.4 + by * 4.0))
    return replace(base().host, first=first, last=last).got_busier


def doubles(share: float) -> Case:
    counts = {"float64": round(share * 1_000_000), "float32": 1_000_000 - round(share * 1_000_000)}
    return make.with_manifest(base(), facts={"optimizers": [{"name": "SGD", "dtypes": counts}]})


@dataclass(frozen=True)
class Edge:
    """Where a threshold lies, and what it switches: `drive` is false below it and true above it."""

    at: float
    drive: Callable[[float], bool]


def whole(number: float) -> int:
    """Take a count just below or just above a whole limit."""
    return int(np.floor(number))


EDGES: Mapping[str, Edge] = {
    "MODERATE_WAIT_FRAC": Edge(0.05, lambda x: judge_wait(x, True).tone != "good"),
    "HIGH_WAIT_FRAC": Edge(0.20, lambda x: judge_wait(x, True).tone == "bad"),
    "INPUT_WAIT_FRAC": Edge(0.08, lambda x: make.speaks(starving(x), "slow_read")),
    "STARVED_WAIT_FRAC": Edge(0.10, lambda x: starving(x).loading.is_starved),
    "LATE_FRAC": Edge(
        0.15,
        lambda x: make.with_loading(starving(0.4, None), readiness=(Readiness("q", 100, x, 0.0),)).loading.is_starved,
    ),
    "EMPTY_QUEUE_FRAC": Edge(0.30, lambda x: judge_late(x) == "making"),
    "FULL_QUEUE_FRAC": Edge(0.70, lambda x: read_usage(x) == "The transfer is the limit"),
    "LATE_WAIT_FRAC": Edge(0.50, lambda x: judge_late(0.1, x) == "making"),
    "QUEUED_FRAC": Edge(0.25, lambda x: judge_ready(WorkerLoad(0.2, 0.9, x))[1] == "processor"),
    "HANDOVER_BUSY_FRAC": Edge(0.50, lambda x: judge_ready(WorkerLoad(x, 0.9))[0] == "collate"),
    "BUSY_WORKERS_FRAC": Edge(0.95, lambda x: judge_ready(WorkerLoad(x, 0.9))[1] == "making"),
    "COMPUTING_FRAC": Edge(0.20, lambda x: judge_ready(WorkerLoad(0.7, x))[0] == "collate"),
    "OWN_BUSY_FRAC": Edge(0.50, lambda x: find_own_bottleneck(own_stages(x)).stage == "decode"),
    "OWN_WAIT_FRAC": Edge(0.20, lambda x: find_own_bottleneck(own_stages(0.7, x)).stage is None),
    "CAPPED_NEED": Edge(0.5, lambda x: capped(x).is_capped),
    "CAPPED_DEMAND_FRAC": Edge(0.9, lambda x: capped(0.9, x).is_capped),
    "NOISY_FRAC": Edge(0.25, lambda x: make.speaks(make.with_load(base(), others=4.0 * x), "noisy_host")),
    "BUSIER_FRAC": Edge(0.10, busier),
    "THREADS_COMPUTE_FRAC": Edge(
        0.30,
        lambda x: make.speaks(
            make.with_manifest(
                make.with_steps(base(), phases_ns=dict.fromkeys(base().steps.phases_ns, 0.0) | {"forward": 64e6 * x}),
                torch_threads=32,
            ),
            "threads_over_cores",
        ),
    ),
    "MIN_STEPS": Edge(20, lambda x: "all" not in [entry.rule for entry in judge(steady(whole(x))).abstained]),
    "MIN_GAIN_FRAC": Edge(0.05, lambda x: is_sure(base(), claim_of(x * base().steps.mean_ns))),
    "MIN_GAIN_NS": Edge(500_000.0, short_step),
    "CONTENTION_WEIGHT": Edge(0.25, lambda x: contended(0.05 + 0.4 * x)),
    "CLOSE_FRAC": Edge(
        0.10, lambda x: _choose([claim_of(10e6), claim_of((1 - x) * 10e6, "flag")], 64e6).rule.effort == "code"
    ),
    "LARGE_PART_FRAC": Edge(0.20, doubtful),
    "MUTE_WAIT_FRAC": Edge(0.20, lambda x: _is_muted(starving(x), claim_of(1.0).rule)),
    "HIGH_GAIN_FRAC": Edge(0.20, lambda x: severity(x) == "high"),
    "LOW_GAIN_FRAC": Edge(0.10, lambda x: severity(x) != "low"),
    "BOUND_FRAC": Edge(0.10, lambda x: find_bound(make.split_step(base(), tail=x)).kind == "overhead"),
    "IN_MEMORY_NS": Edge(30_000.0, lambda x: not make.speaks(in_memory(x), "in_memory_fetch")),
    "SEND_NS": Edge(300_000.0, lambda x: make.speaks(sending(3 * x), "no_workers")),
    "WORKERS_BUSY_FRAC": Edge(0.8, lambda x: make.speaks(busy_workers(x), "too_few_workers")),
    "PREFETCH_LOAD_FRAC": Edge(0.95, lambda x: not make.speaks(lightly_loaded(x), "shallow_prefetch")),
    "UNEVEN_SPREAD": Edge(0.5, lambda x: make.speaks(uneven(x), "uneven_samples")),
    "UNEVEN_LOAD_FRAC": Edge(0.7, lambda x: not make.speaks(uneven(0.8, x), "uneven_samples")),
    "MIN_RESTARTS": Edge(2, lambda x: make.speaks(restart(whole(x)), "worker_restart")),
    "DISPATCH_FRAC": Edge(0.15, lambda x: make.speaks(make.with_device(base(), dispatch_frac=x), "launch_bound")),
    "DEVICE_IDLE_FRAC": Edge(0.30, lambda x: make.speaks(make.with_device(base(), busy=1 - x), "launch_bound")),
    "LAUNCH_IDLE_FRAC": Edge(0.5, lambda x: make.speaks(make.with_device(base(), host_wait=x), "launch_bound")),
    "FULL_PRECISION_FRAC": Edge(
        0.3, lambda x: make.speaks(make.with_device(base(), full_precision_frac=x), "tf32_off")
    ),
    "PAGEABLE_FRAC": Edge(0.05, lambda x: make.speaks(copying(x, False), "pageable_copy")),
    "BLOCKING_FRAC": Edge(0.08, lambda x: make.speaks(copying(x, True), "blocking_copy")),
    "PREPARE_FRAC": Edge(0.10, lambda x: make.speaks(make.with_share(base(), "h2d", x), "serial_copy")),
    "UPDATE_FRAC": Edge(0.10, lambda x: make.speaks(updating(x), "optimizer_loop")),
    "OUTSIDE_FRAC": Edge(0.10, lambda x: make.speaks(make.split_step(base(), tail=x), "python_gap")),
    "CHECKPOINT_FRAC": Edge(0.05, lambda x: make.speaks(saving(x), "checkpoint_stall")),
    "GC_FRAC": Edge(0.05, lambda x: make.speaks(make.with_rows(base(), gc_ns=x * 64e6), "gc_pauses")),
    "STALL_FRAC": Edge(0.05, lambda x: make.speaks(stall(10, 10 * 64 * x / (1 - x)), "periodic_stall")),
    "MIN_STALLS": Edge(3, lambda x: make.speaks(stall(12, 300.0, whole(x)), "periodic_stall")),
    "MOST_STALLS_FRAC": Edge(
        0.34, lambda x: not make.speaks(stall_at([*range(2, 122, 3), 0][: whole(x * STEPS + 0.2)]), "periodic_stall")
    ),
    "EVEN_DISTANCE_FRAC": Edge(
        0.2, lambda x: not make.speaks(stall_at([0, 20, 40, 60 + whole(20 * x + 0.999), 80]), "periodic_stall")
    ),
    "EXPLAINED_FRAC": Edge(0.5, lambda x: not make.speaks(saved_stalls(x), "periodic_stall")),
    "MIN_RECOMPILES": Edge(2, lambda x: make.speaks(recompiled(whole(x), 0.1), "recompiles")),
    "RECOMPILE_FRAC": Edge(0.02, lambda x: make.speaks(recompiled(9, x), "recompiles")),
    "EVALUATION_FRAC": Edge(0.25, lambda x: make.speaks(evaluating(x), "validation_share")),
    "WARM_UP_FRAC": Edge(0.10, lambda x: make.speaks(warm(20e9, 20e9 / x), "warm_up")),
    "WARM_UP_NS": Edge(10e9, lambda x: make.speaks(warm(x, 2 * x), "warm_up")),
    "DRIFT_FRAC": Edge(0.15, lambda x: make.speaks(drift(x), "drift")),
    "DRIFT_STEPS": Edge(60, lambda x: make.speaks(drift(0.4, whole(x)), "drift")),
    "DRIFT_RISES": Edge(4, lambda x: make.speaks(drift(0.4, falls=5 - whole(x)), "drift")),
    "GROWN_FRAC": Edge(
        0.10, lambda x: make.speaks(growth(tuple(1e9 * (1 + x * n / 5) for n in range(6))), "memory_creep")
    ),
    "GROWN_BYTES": Edge(
        67_108_864, lambda x: make.speaks(growth(tuple(1e8 + x * n / 5 for n in range(6))), "memory_creep")
    ),
    "RECORDING_FRAC": Edge(
        0.03, lambda x: make.speaks(make.with_manifest(base(), overhead=Overhead(1e6, x, "")), "collector_overhead")
    ),
    "RECORDING_LARGE_FRAC": Edge(
        0.10,
        lambda x: (
            make.find(make.with_manifest(base(), overhead=Overhead(1e6, x, "")), "collector_overhead").severity == "low"
        ),
    ),
    "EXPOSED_FRAC": Edge(
        0.10,
        lambda x: make.speaks(
            replace(make.with_share(base(), "communication", x), ranks=replace(base().ranks, world_size=2)),
            "exposed_all_reduce",
        ),
    ),
    "STRAGGLER_FRAC": Edge(0.10, lambda x: make.speaks(straggling(x), "fixed_straggler")),
    "FLOAT64_FRAC": Edge(0.5, lambda x: make.speaks(doubles(x), "float64")),
}
EXACT = {
    *("VOLTA", "AMPERE", "LEAST_LOW_FRAC", "SURE_FRAC", "LIKELY_FRAC"),
    *("UNSEEN_DEVICE", "FLOAT64_SAVED_FRAC", "DRIFT_PARTS"),
}
"""Figures that are no threshold of one quantity; those with a consequence have a test of their own below."""


def test_every_limit_is_tested() -> None:
    names = {name for name in vars(limits) if name.isupper()}
    assert names == {*EDGES, *EXACT}


@pytest.mark.parametrize("name", EDGES)
def test_the_threshold_lies_where_it_is_said_to(name: str) -> None:
    edge = EDGES[name]
    assert not edge.drive(edge.at * 0.999), "it speaks below its threshold"
    assert edge.drive(edge.at * 1.001), "it is silent above its threshold"


@pytest.mark.parametrize(
    ("capability", "rules"), [("6.1", []), ("7.0", ["amp_off"]), ("8.0", ["tf32_off"]), ("9.0", ["tf32_off"])]
)
def test_precision_follows_the_generation_of_the_device(capability: str, rules: list[str]) -> None:
    case = make.with_device(base(), full_precision_frac=0.5)
    entry = replace(case.device.entries[0], compute_capability=capability)
    case = replace(case, device=replace(case.device, entries=(entry,)))
    assert [rule for rule in ("amp_off", "tf32_off") if make.speaks(case, rule)] == rules


@pytest.mark.parametrize(
    ("waiting", "words"),
    [
        (1.0, "sure: 120 steps agree"),
        (0.8, "fairly sure: 90 of 120 steps agree"),
        (0.5, "unsure: only 60 of 120 steps agree"),
    ],
)
def test_how_sure_a_verdict_is_follows_from_the_steps_that_agree(waiting: float, words: str) -> None:
    assert agreeing(waiting) == words


def test_a_verdict_on_computing_is_unsure_while_the_device_was_not_seen() -> None:
    case = make.with_device(base(), summary=None)
    found = find_bound(case)
    assert (found.confidence_frac, found.confidence) == (0.6, "unsure: the times of the device were not recorded")
