"""Jobs of many ranks that meet in collectives, made from a seed with a known culprit: as summaries, or as a run on disk."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from collector.format import parts
from collector.format.intervals import Floats, Ints
from collector.format.phases import PHASE_NAMES
from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.manifest import encode_manifest
from profiler_server.analysis.ranks.calls import Calls
from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.analysis.ranks.together import RankSteps
from tests.support.runs import HEALTHY_STEP_MS, MS, RunPlan, build_run

OWN = tuple(name for name in PHASE_NAMES if name != "communication")
_AFTER = ("optimizer", "tail")
"""What ranks do in a step when they have met."""
STEP_NS = sum(value for name, value in HEALTHY_STEP_MS.items() if name in OWN) * MS


@dataclass(frozen=True)
class JobPlan:
    """What to make. Shares are of the work of a step. `noise_frac` is how much each phase of each step varies.

    `slow` ranks take `slow_frac` longer in `phase`; with `takes_turns` another rank in each step. `uneven_frac` is how
    much the lengths of inputs vary. The last of the `calls` of a step moves data for `transfer_ms`, the one of
    `slow_call` ten times as long. Hosts of `ranks_per_host` ranks have clocks that differ by up to `apart_ns` and `drift`.
    """

    ranks: int = 8
    steps: int = 60
    seed: int = 0
    calls: int = 1
    noise_frac: float = 0.01
    slow: tuple[int, ...] = ()
    slow_frac: float = 0.0
    phase: str = "forward"
    takes_turns: bool = False
    uneven_frac: float = 0.0
    transfer_ms: float = 2.0
    slow_call: int | None = None
    ranks_per_host: int = 1 << 20
    apart_ns: float = 0.0
    drift: float = 0.0


@dataclass(frozen=True)
class Job:
    """What happened. `work_ns` is (phases of OWN, ranks, steps), `begin_ns` and `end_ns` of the meetings (ranks, steps,
    calls) on the clock of each rank, `start_ns` of the steps (ranks, steps + 1). `slowdown` is the mean step over that of
    the same job with even work."""

    plan: JobPlan
    work_ns: Floats
    begin_ns: Ints
    end_ns: Ints
    start_ns: Ints
    slowdown: float

    @property
    def held_ns(self) -> Ints:
        held: Ints = (self.end_ns - self.begin_ns).sum(axis=2)
        return held


def make_job(plan: JobPlan) -> Job:
    random = np.random.default_rng(plan.seed)
    work = _make_work(plan, random)
    transfers = np.full(plan.calls, plan.transfer_ms * MS)
    if plan.slow_call is not None:
        transfers[plan.slow_call] *= 10
    after = np.array([name in _AFTER for name in OWN])
    before, behind = work[~after].sum(axis=0), work[after].sum(axis=0)
    begin, end, start = _meet(before, behind, transfers, random)
    even = np.full_like(before, before.mean()), np.full_like(behind, behind.mean())
    _, _, even_start = _meet(*even, transfers, np.random.default_rng(plan.seed))
    slowdown = float((start[:, -1] - start[:, 0]).mean() / (even_start[:, -1] - even_start[:, 0]).mean())
    host = np.arange(plan.ranks) // plan.ranks_per_host
    offset = random.uniform(-1, 1, host.max() + 1)[host] * plan.apart_ns
    drift = random.uniform(-1, 1, host.max() + 1)[host] * plan.drift

    def read_clock(times: Floats) -> Ints:
        shape = (-1, *(1,) * (times.ndim - 1))
        read: Ints = np.round(times * (1 + drift.reshape(shape)) + offset.reshape(shape)).astype(np.int64)
        return read

    return Job(plan, work, read_clock(begin), read_clock(end), read_clock(start), slowdown)


def _make_work(plan: JobPlan, random: np.random.Generator) -> Floats:
    usual = np.array([HEALTHY_STEP_MS[name] * MS for name in OWN])
    shape = (len(OWN), plan.ranks, plan.steps)
    work = usual[:, None, None] * np.maximum(1 + plan.noise_frac * random.standard_normal(shape), 0.1)
    length = 1 + plan.uneven_frac * random.uniform(-1, 1, (plan.ranks, plan.steps))
    for name in ("forward", "backward"):
        work[OWN.index(name)] *= length
    late = plan.slow_frac * STEP_NS
    if plan.takes_turns:
        work[OWN.index(plan.phase), random.integers(0, plan.ranks, plan.steps), np.arange(plan.steps)] += late
    elif plan.slow:
        work[OWN.index(plan.phase), list(plan.slow)] += late
    return work


def _meet(
    before: Floats, behind: Floats, transfers: Floats, random: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    """Let the ranks work a part of each step, meet, and so on, and do the rest of it behind the last meeting."""
    ranks, steps = before.shape
    calls = len(transfers)
    begin, end = np.empty((ranks, steps, calls)), np.empty((ranks, steps, calls))
    start = np.empty((ranks, steps + 1))
    now = np.asarray(1_000.0 * MS + random.uniform(0, MS, ranks), np.float64)
    for step in range(steps):
        start[:, step] = now
        for call in range(calls):
            now = now + before[:, step] / calls
            begin[:, step, call] = now
            # The ranks leave together, but for some microseconds.
            now = now.max() + transfers[call] + random.uniform(0, 5_000, ranks)
            end[:, step, call] = now
        now = now + behind[:, step]
    start[:, -1] = now
    return begin, end, start


def summarize_job(job: Job) -> tuple[RankSummary, ...]:
    """Return what the server reads of the run that `write_job` writes, without writing it."""
    return tuple(_summarize(job, rank) for rank in range(job.plan.ranks))


def _summarize(job: Job, rank: int) -> RankSummary:
    own = dict(zip(OWN, job.work_ns[:, rank], strict=True))
    phases = {name: own[name] if name in own else job.held_ns[rank].astype(float) for name in PHASE_NAMES}
    step = np.arange(1, job.plan.steps + 1)
    total = job.work_ns[:, rank].sum(axis=0)
    parts = np.stack([*phases.values()]).astype(np.float32)
    none, unknown = np.zeros(len(step), np.float32), np.full(len(step), np.nan, np.float32)
    return RankSummary(
        rank=rank,
        host=f"host{rank // job.plan.ranks_per_host}",
        state="complete",
        steps=job.plan.steps,
        step_ns=float(np.mean([*phases.values()], axis=1).sum()),
        own_ns=float(total.mean()),
        noise_ns=float(total.std() / np.sqrt(len(total))),
        phases_ns={name: float(values.mean()) for name, values in phases.items()},
        together=RankSteps(step, parts, none, none, unknown),
        calls=make_calls(job, rank),
    )


def make_calls(job: Job, rank: int) -> Calls:
    calls = job.plan.calls
    step = np.repeat(np.arange(1, job.plan.steps + 1), calls)
    number = np.tile(np.arange(calls), job.plan.steps)
    begin, end = job.begin_ns[rank].ravel(), job.end_ns[rank].ravel()
    size = np.full(len(step), 25 << 20)
    members = np.full(len(step), job.plan.ranks)
    kinds = (("default", "allreduce"),)
    return Calls(kinds, 0 * step, step, step, number, begin, end - begin, end - begin, size, members)


def take(calls: Calls, chosen: object) -> Calls:
    """Return some of the calls of a rank: a slice, or a mask."""
    columns = (field.name for field in dataclasses.fields(calls) if field.name != "kinds")
    return dataclasses.replace(calls, **{name: getattr(calls, name)[chosen] for name in columns})


def write_job(path: Path, plan: JobPlan) -> Path:
    """Write the job as a run of the collector without detailed windows."""
    job = make_job(plan)
    build_run(path, RunPlan(steps=0, operators=False))
    run = open_run(path)
    run_manifest, manifest = run.manifest, run.rank(0).manifest
    for rank in range(plan.ranks):
        folder = layout.rank_path(path, rank)
        folder.mkdir(parents=True, exist_ok=True)
        host = f"host{rank // plan.ranks_per_host}"
        own = dataclasses.replace(manifest, rank=rank, host=host, windows=())
        layout.rank_file(path, rank).write_text(encode_manifest(own), encoding="utf-8")
        _write(folder, "steps", _list_steps(job, rank))
        _write(folder, "collectives", _list_collectives(job, rank))
    whole = dataclasses.replace(run_manifest, world_size=plan.ranks, host="host0")
    layout.run_file(path).write_text(encode_manifest(whole), encoding="utf-8")
    return path


def _write(folder: Path, table: str, columns: dict[str, object]) -> None:
    parts.write_table(parts.build_table(table, columns), layout.table_file(folder, table))


def _list_steps(job: Job, rank: int) -> dict[str, object]:
    steps = job.plan.steps
    number, ones = np.arange(1, steps + 1), np.ones(steps, np.int32)
    phases = {name: np.round(job.work_ns[at, rank]).astype(np.int64) for at, name in enumerate(OWN)}
    phases["communication"] = job.held_ns[rank]
    flags = {name: np.zeros(steps, np.bool_) for name in ("detailed", "markers")}
    counts = dict.fromkeys(("fetches", "forwards", "backwards", "optimizer_steps"), ones)
    nothing = {name: np.zeros(steps, np.int64) for name in ("loader_start_ns", "gc_ns")}
    return {
        "index": number - 1,
        "step": number,
        "kind": ["train"] * steps,
        "start_ns": job.start_ns[rank, :-1],
        "duration_ns": np.sum([*phases.values()], axis=0),
        **{f"{name}_ns": phases[name] for name in PHASE_NAMES},
        "epoch": ones,
        "loader": 0 * ones,
        "batch": number,
        "samples": 32 * ones,
        "skipped_updates": 0 * ones,
        **flags,
        **counts,
        **nothing,
    }


def _list_collectives(job: Job, rank: int) -> dict[str, object]:
    calls = make_calls(job, rank)
    rows = len(calls.step)
    return {
        "step": calls.step,
        "name": ["allreduce"] * rows,
        "group": ["default"] * rows,
        "index": np.arange(rows),
        "start_ns": calls.start_ns,
        "duration_ns": calls.duration_ns,
        "bytes": calls.bytes,
        "dtype": ["float32"] * rows,
        "group_size": calls.group_size.astype(np.int32),
        "on_device": np.zeros(rows, np.bool_),
        "held_ns": calls.held_ns,
    }
