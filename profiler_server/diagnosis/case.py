"""What a rule is given and what it returns: the facts of one rank, measured once, and a finding that can be checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from collector.format.schema.manifest import Loader, RankManifest
from collector.format.steps import StepSelection
from profiler_server.analysis.data.loader_simulation import Job, LoopModel, find_workers
from profiler_server.analysis.data.loop import BatchTimes, MeasuredLoop
from profiler_server.analysis.data.pipeline import Bottleneck, Readiness
from profiler_server.analysis.memory.host import HostLoad
from profiler_server.analysis.results import Abstention, DeviceSummary, Evidence
from profiler_server.analysis.steps.compiles import CompileEvents
from profiler_server.analysis.steps.interruptions import Interruptions
from profiler_server.format import format_duration, format_share

WhatIf = Callable[[LoopModel], LoopModel]
Tier = Literal["M", "A", "R"]
Effort = Literal["flag", "argument", "code", "format", "semantics"]
EFFORTS: tuple[Effort, ...] = ("flag", "argument", "code", "format", "semantics")

INPUT_LIMIT = 0.08
"""Share of the step that must be spent in `next()` before a rule about loading speaks."""

STARVED_LIMIT = 0.10
"""Share of the step in `next()` from which the slow stage gets a suggestion, even one of lower confidence."""

LATE_LIMIT = 0.15
"""Share of the steps that found no batch ready from which batches count as late."""

CAPPED_NEED, CAPPED_DEMAND = 0.5, 0.9
"""Processor share of the workers' time, and share of the cores in use, from which the processors are the limit."""

MIN_GAIN_FRAC = 0.05
"""Part of the step that a fix must gain after all doubt."""

CONTENTION_WEIGHT = 0.25
"""That part grows by this times the share of the cores that other programs use."""

DISPATCH_LIMIT = 0.15
"""Share of the step that the host must spend in operators for an idle device to wait for launches, not for Python."""

IN_MEMORY_NS = 30_000.0
"""A sample that takes less than this comes from memory: worker processes do not pay."""


@dataclass(frozen=True)
class Peer:
    """Another rank of the run: its mean step, and how much of that it was held in collectives."""

    rank: int
    step_ns: float
    communication_ns: float


@dataclass(frozen=True)
class DeviceShares:
    """What a device does in the detailed steps, as shares of them; `unfed` is the idle part that a late host makes."""

    compute: float
    communication: float
    idle: float
    unfed: float


@dataclass(frozen=True)
class Case:
    """One rank of a run as the rules see it. Times are ns; `*_ns` per step are means over the steps of the average.

    `regular_*` leave out the first steps of an epoch. `batches` and `loop` are None where the run has no loader or its
    work was not recorded. `train` are the rows of training steps, aligned with `selection`; `other_rows` are the others.
    """

    manifest: RankManifest
    world_size: int
    train: pa.Table
    other_rows: pa.Table
    selection: StepSelection
    step_ns: float
    phases_ns: Mapping[str, float]
    regular_phases_ns: Mapping[str, float]
    loader: Loader | None
    readiness: tuple[Readiness, ...]
    batches: BatchTimes | None
    bottleneck: Bottleneck
    loop: MeasuredLoop
    transforms: tuple[tuple[str, float], ...]
    host: HostLoad | None
    device: DeviceSummary | None
    full_precision_frac: float | None
    dispatch_frac: float | None
    peers: tuple[Peer, ...]
    interruptions: Interruptions
    compiles: Mapping[str, CompileEvents]

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.manifest.facts

    @property
    def cores(self) -> float:
        return self.loop.model.cores

    @property
    def is_imported(self) -> bool:
        """Say whether the rank was read from a trace, and is not a whole run of Stepscope."""
        return self.manifest.is_trace

    @property
    def shows_no_workers(self) -> bool:
        """Say whether the trace has the iterator of a loader without workers; a trace knows no more of its loader."""
        return self.facts.get("data_loader") == "single_process"

    @property
    def has_accelerator(self) -> bool:
        """Say whether steps run on a device beside the host: CUDA, ROCm, XPU, MTIA and the like."""
        return any(device.kind not in ("cpu", "mps") for device in self.manifest.devices)

    @property
    def cuda_generation(self) -> int:
        """The major compute capability of the CUDA device (7 Volta and Turing, 8 Ampere, 9 Hopper); 0 for none."""
        found = next((device.compute_capability for device in self.manifest.devices if device.kind == "cuda"), None)
        major = (found or "").split(".")[0]
        return int(major) if major.isdecimal() and len(major) < 4 else 0

    @property
    def device_shares(self) -> DeviceShares | None:
        """The device's accounts, which run from its first to its last work, set against the whole steps.

        What of a step lies before the first and after the last work is idle for want of a launch.
        """
        device = self.device
        if device is None or not device.total_ns or device.utilization_frac is None:
            return None
        active = max(device.total_ns - device.idle_ns, 1)
        busy = min(1.0, device.utilization_frac + device.exposed_copy_ns / device.total_ns)
        idle, within = 1.0 - busy, busy * device.idle_ns / active
        causes = device.idle_causes_ns
        blamed = causes.host_wait + causes.kernel_wait + causes.other
        late = min(within, idle) * (causes.host_wait / blamed if blamed else 0.0)
        return DeviceShares(
            compute=busy * device.computation_ns / active,
            communication=busy * device.exposed_communication_ns / active,
            idle=idle,
            unfed=late + max(0.0, idle - within),
        )

    @property
    def is_dispatching(self) -> bool:
        """Say whether the host spends its time launching, as far as is known: else an idle device waits for Python."""
        return self.dispatch_frac is None or self.dispatch_frac >= DISPATCH_LIMIT

    @property
    def wait_ns(self) -> float:
        """Wait for data in a regular step; of a trace, no more of it than the device idles, which else hides it."""
        wait_ns, shares = self.regular_phases_ns["data_wait"], self.device_shares
        if not self.is_imported or shares is None:
            return wait_ns
        return min(wait_ns, shares.idle * self.loop.regular_step_ns)

    @property
    def wait_frac(self) -> float:
        return self.wait_ns / self.loop.regular_step_ns if self.loop.regular_step_ns else 0.0

    @property
    def is_input_bound(self) -> bool:
        return self.wait_frac > INPUT_LIMIT

    @property
    def is_starved(self) -> bool:
        """Say whether the step waits for data and it is known for what, or batches are late: silence is no answer."""
        late = self.bottleneck.stage is not None or self.not_ready_frac > LATE_LIMIT
        return self.wait_frac >= STARVED_LIMIT and late

    @property
    def batch_ns(self) -> float:
        """Work on one batch, all stages."""
        jobs = self.loop.model.batches
        if self.batches is not None:
            return float(self.batches.total_ns.mean())
        return sum(job.wall_ns for job in jobs) / len(jobs) if jobs else 0.0

    @property
    def cpu_frac(self) -> float:
        """Part of the work on a batch that needs a processor; all of it where that is not known."""
        known = self.batches.cpu_frac if self.batches is not None else None
        return 1.0 if known is None else known

    @property
    def batch_samples(self) -> float:
        """Samples in a batch, 0 where that is not known."""
        if self.batches is not None:
            return self.batches.samples
        return float(self.loader.batch_size or 0) if self.loader is not None else 0.0

    @property
    def is_in_memory(self) -> bool:
        """Say whether samples are so cheap to make that fetching them one by one is most of the cost."""
        samples = self.batch_samples
        return samples >= 8 and 0 < self.batch_ns / samples < IN_MEMORY_NS

    @property
    def cpu_need(self) -> float:
        """Cores that one worker keeps busy, waiting for a processor left out; 1 where that is not known."""
        jobs = self.loop.model.batches
        wall = sum(job.wall_ns for job in jobs)
        return sum(job.wall_ns * job.cores for job in jobs) / wall if wall else 1.0

    @property
    def is_capped(self) -> bool:
        """Say whether there is a worker per core, they compute rather than wait, and no processor is left for more."""
        busy = self.cpu_need > CAPPED_NEED and self.demand_frac >= CAPPED_DEMAND
        return busy and self.loop.model.workers >= int(self.cores)

    @property
    def not_ready_frac(self) -> float:
        """How often the next batch was missing from the queue that the training thread takes from."""
        if self.readiness:
            return self.readiness[-1].not_ready_frac
        return 1.0 if self.is_input_bound else 0.0

    @property
    def demand_frac(self) -> float:
        """Cores in use while steps ran over those that can be used; estimated from the work where it was not sampled."""
        if self.host is not None and self.host.system is not None:
            return self.host.system / self.cores
        model = self.loop.model
        per_batch = self.batch_ns * self.cpu_frac
        own = (1.0 - self.wait_frac) * model.steps[0].cores if model.steps else 0.0
        loading = per_batch * self.loop.fetches / self.loop.regular_step_ns if self.loop.regular_step_ns else 0.0
        return (loading + own) / model.cores + self.loop.contention_frac

    def phase_frac(self, *names: str) -> float:
        """Return the share of the mean step that the phases take."""
        return sum(self.phases_ns[name] for name in names) / self.step_ns if self.step_ns else 0.0


@dataclass(frozen=True)
class Finding:
    """What a rule found. The prediction is made from `what_if` by the diagnosis, the same way for every rule.

    `fix` is the change in a few words ("num_workers 2 → 6"). `what_if` None claims no step time. `gain_range` bounds
    the part of the simulated gain that can be expected: a step time is predicted by a rule that is sure of its fix,
    a range by one that is not. `severity` is set by rules that claim nothing. `assumption` is what the prediction
    takes for granted ("transforms took half as long"), where reaching it is up to the user.
    """

    title: str
    measured: str
    threshold: str
    advice: str
    change: str
    fix: str
    evidence: tuple[Evidence, ...]
    assumption: str = ""
    what_if: WhatIf | None = None
    tier: Tier = "R"
    gain_range: tuple[float, float] = (0.9, 1.05)
    severity: Literal["medium", "low", "info"] = "info"


@dataclass(frozen=True)
class Rule:
    """One rule. Rules with the same `knob` turn the same thing, so only the best of them is shown with its gain.

    `muted_when_input_bound` silences rules on what the device or the update does while the loop starves. `stage` is that
    of the data pipeline that the rule is about: it is said without a prediction if that stage starves the step and no
    change is known to gain.
    """

    id: str
    knob: str
    effort: Effort
    judge: Callable[[Case], Finding | Abstention | None]
    muted_when_input_bound: bool = False
    stage: str = ""
    feeds: bool = False


@dataclass(frozen=True)
class Claim:
    """A finding with the step time that it predicts, alone or (where `after` is set) on top of that fix.

    `least_gain_ns` is what a poor version of the fix gains, `sure_gain_ns` what the predicted one gains after all doubt
    about the measurement. `feeds` says that the fix only changes how batches are made.
    """

    rule: Rule
    finding: Finding
    step_ns: float
    low_ns: float
    high_ns: float
    least_gain_ns: float
    sure_gain_ns: float
    feeds: bool = False
    after: str = ""
    instead_of: str = ""

    @property
    def gain_order(self) -> int:
        return EFFORTS.index(self.rule.effort)


_MOST_WORKERS = 8
_MOST_PER_CORE = 4


def choose_workers(case: Case) -> int:
    """Return the smallest number of workers within 3 % of the best, of those that the usable cores can feed.

    Workers that compute beyond the cores only take turns, and take processors from the step and from others; those
    that wait for storage are bounded by what a host stands.
    """
    fed = int(case.cores / max(case.cpu_need, 0.01) + 0.25)
    most = max(1, min(fed, max(_MOST_WORKERS, int(_MOST_PER_CORE * case.cores))))
    return find_workers(replace(case.loop.model, workers=1), most=most)


def set_workers(workers: int) -> WhatIf:
    """Return the what-if of another number of workers."""

    def change(model: LoopModel) -> LoopModel:
        return replace(model, workers=workers, prefetch=max(model.prefetch, 2))

    return change


def scale_stages(batches: BatchTimes, stages: tuple[str, ...], factor: float) -> WhatIf:
    """Return the what-if of stages that take `factor` of their time, batch for batch."""
    taken = sum(batches.stages_ns[stage] for stage in stages if stage in batches.stages_ns) / batches.total_ns

    def change(model: LoopModel) -> LoopModel:
        shares = taken[-len(model.batches) :]
        kept = 1.0 - (1.0 - factor) * shares
        jobs = zip(model.batches, kept, strict=True)
        return replace(model, batches=tuple(Job(job.wall_ns * float(part), job.cores) for job, part in jobs))

    return change


def shorten_step(saved_ns: float, fetches: float) -> WhatIf:
    """Return the what-if of a step that is shorter by so much outside of the wait for data."""

    def change(model: LoopModel) -> LoopModel:
        mean = sum(step.wall_ns for step in model.steps) / len(model.steps)
        # In proportion: what stalls some steps is saved in those, and cannot be saved in the short ones between.
        kept = max(1.0 - saved_ns / fetches / mean, 0.02)
        return replace(model, steps=tuple(Job(step.wall_ns * kept, step.cores) for step in model.steps))

    return change


def shorten_kernels(case: Case, saved_frac: float) -> WhatIf:
    """Return the what-if of kernels that take so much less of their time: only while it computes, the device is faster."""
    shares = case.device_shares
    busy = shares.compute if shares is not None else 0.0
    own_ns = case.loop.regular_step_ns - case.wait_ns
    return shorten_step(saved_frac * busy * own_ns, case.loop.fetches)


def drop_extra(saved_ns: float) -> WhatIf:
    """Return the what-if of amortised events that cost so much less per step."""

    def change(model: LoopModel) -> LoopModel:
        return replace(model, extra_ns=model.extra_ns - saved_ns)

    return change


def write_loader(loader: Loader, **changes: Any) -> str:
    """Return the DataLoader call of the run with some arguments changed, ready to copy."""
    now: dict[str, Any] = {
        "batch_size": loader.batch_size,
        "shuffle": loader.shuffle,
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "pin_memory": loader.pin_memory or None,
        "persistent_workers": loader.persistent_workers or None,
        "in_order": None if loader.in_order else False,
    }
    lines = [f"    dataset,  # {loader.dataset}"]
    for name, value in now.items():
        if name in changes:
            shown = "default" if value is None else value
            lines.append(f"    {name}={changes[name]!r},  # was {shown}")
        elif value is not None:
            lines.append(f"    {name}={value!r},")
    return "\n".join(["DataLoader(", *lines, "    # your other arguments as they are", ")"])


def say_wait(case: Case) -> str:
    """Return the sentence that most rules about loading measure."""
    some_left_out = bool((case.selection.kept & ~case.selection.regular).any())
    step = "A step that is not the first of an epoch" if some_left_out else "The step"
    return (
        f"{step} waits {format_duration(case.wait_ns)} of {format_duration(case.loop.regular_step_ns)} "
        f"({format_share(case.wait_frac)}) for data."
    )


DATA_PAGE = Evidence("data", "tab=interval", "Queue depth and wait per step")
STAGES_PAGE = Evidence("data", "tab=processing", "Work and wait of each stage")
STEPS_PAGE = Evidence("steps", "", "Phases of the average step")
OPERATORS_PAGE = Evidence("operators", "", "Operators of the detailed window")
