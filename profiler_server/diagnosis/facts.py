"""What a rule is given: the facts of one rank, measured once. Times are ns; `*_ns` per step are means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa

from collector.format.schema.manifest import Device as DeviceEntry
from collector.format.schema.manifest import RankManifest
from collector.format.steps import StepSelection, read_integers
from profiler_server.analysis.data.probe import InputFreeStep
from profiler_server.analysis.device.clocks import HeldClock
from profiler_server.analysis.memory.host import HostLoad
from profiler_server.analysis.operators.anomaly import AnomalyWork
from profiler_server.analysis.operators.convolutions import SlowConvolutions
from profiler_server.analysis.operators.looped import LoopedRows
from profiler_server.analysis.replay.results import Gain, Replayed
from profiler_server.analysis.results import DeviceSummary
from profiler_server.analysis.stacks.stacks import Stacks
from profiler_server.analysis.steps.compiles import CompileEvents
from profiler_server.analysis.steps.interruptions import Interruptions
from profiler_server.analysis.steps.logged import Logged
from profiler_server.analysis.steps.shifts import Shift, find_shift
from profiler_server.diagnosis.limits import (
    BUSIER_FRAC,
    CAPPED_DEMAND_FRAC,
    CAPPED_NEED,
    DISPATCH_FRAC,
    MIN_ACCUMULATED,
    QUEUED_FRAC,
)
from profiler_server.diagnosis.loading_facts import Loading
from profiler_server.diagnosis.rank_facts import Peer, Ranks

__all__ = ["COMPUTING", "Case", "Device", "DeviceShares", "Host", "Loading", "Peer", "Ranks", "Steps"]

COMPUTING = ("forward", "backward", "optimizer")
"""The phases in which a step computes."""


@dataclass(frozen=True)
class Steps:
    """The training steps and what they are made of, as means over the steps of the average.

    `rows` are training steps, aligned with `selection`; `other_rows` are the others. `regular_phases_ns` leave out the
    first steps of an epoch.
    """

    rows: pa.Table
    other_rows: pa.Table
    selection: StepSelection
    mean_ns: float
    phases_ns: Mapping[str, float]
    regular_phases_ns: Mapping[str, float]
    interruptions: Interruptions
    compiles: Mapping[str, CompileEvents]
    logged: Logged | None = None
    noun: str = "step"
    """What a step is called: batch, where the run only infers."""
    micro_batches: int = 1
    """Batches whose gradients the usual step accumulates."""
    slow_convolutions: SlowConvolutions = field(default_factory=SlowConvolutions)
    operator_fracs: Mapping[str, float] = field(default_factory=dict)
    """Share of each phase in operators, as the detailed steps show it; empty where there are none."""
    looped: LoopedRows | None = None
    """A loop of Python over the rows of a tensor, as the detailed steps show it."""

    @cached_property
    def shift(self) -> Shift | None:
        """Where the regular steps became longer or shorter for good, None where they did not."""
        return find_shift(self.selection.duration_ns[self.selection.regular])

    @property
    def steady(self) -> int:
        """How many steps are regular: no warm-up, not in a window, not the first of an epoch."""
        return int(self.selection.regular.sum())

    def share(self, *names: str) -> float:
        """Return the share of the mean step that the phases take."""
        return sum(self.phases_ns[name] for name in names) / self.mean_ns if self.mean_ns else 0.0


@dataclass(frozen=True)
class DeviceShares:
    """What a device does in the detailed steps, as shares of them; `unfed` is the idle part that a late host makes."""

    compute: float
    communication: float
    idle: float
    unfed: float


@dataclass(frozen=True)
class Device:
    """The devices of the rank and what they did; `dispatch_frac` is the share of the step that the host is in operators.

    `replay` is that of the last detailed window, None where there is none or no launch is known. `memory_peak_frac` is
    the most that was held of a device's memory.
    """

    entries: tuple[DeviceEntry, ...]
    summary: DeviceSummary | None
    full_precision_frac: float | None
    dispatch_frac: float | None
    replay: Replayed | None = None
    memory_peak_frac: float | None = None
    held_clock: HeldClock | None = None

    @property
    def is_used(self) -> bool:
        """Say whether steps run on a device beside the host: CUDA, ROCm, XPU, MTIA and the like."""
        return any(entry.kind not in ("cpu", "mps") for entry in self.entries)

    @property
    def cuda_generation(self) -> int:
        """The major compute capability of the CUDA device (7 Volta and Turing, 8 Ampere, 9 Hopper); 0 for none."""
        found = next((entry.compute_capability for entry in self.entries if entry.kind == "cuda"), None)
        major = (found or "").split(".")[0]
        return int(major) if major.isdecimal() and len(major) < 4 else 0

    @property
    def shares(self) -> DeviceShares | None:
        """The device's times as shares of the whole steps, not only of the time from its first to its last work.

        Before its first and after its last work of a step the device is idle because nothing was launched yet.
        """
        device = self.summary
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

    def find_gain(self, change: str) -> Gain | None:
        """Return what a change saves of the replayed window; None where that is not known, or the replay not believed."""
        return self.replay.gains.get(change) if self.replay is not None and self.replay.is_valid else None

    @property
    def is_dispatching(self) -> bool:
        """Say whether the host spends its time launching, as far as is known: else an idle device waits for Python."""
        return self.dispatch_frac is None or self.dispatch_frac >= DISPATCH_FRAC


@dataclass(frozen=True)
class Host:
    """The processors: `cores` that the run may use, and how they were used while steps ran, None where not sampled.

    `load.others` is what other programs took of those cores. `first` and `last` are the load during the first and the
    last sixth of the steps.
    """

    cores: float
    load: HostLoad | None
    first: HostLoad | None = None
    last: HostLoad | None = None

    @property
    def others_frac(self) -> float:
        """Share of the cores that other programs took, 0 where that was not sampled."""
        return self.load.others / self.cores if self.load is not None and self.cores else 0.0

    @property
    def got_busier(self) -> bool:
        """Say whether the processors were busier with others, or waited for longer, at the end than at the start."""
        if self.first is None or self.last is None:
            return False
        taken = (self.last.others - self.first.others) / self.cores
        queued = (self.last.queued_frac or 0.0) - (self.first.queued_frac or 0.0)
        stretched = (self.last.stretch or 1.0) - (self.first.stretch or 1.0)
        return max(taken, queued, stretched) >= BUSIER_FRAC


@dataclass(frozen=True)
class Case:
    """One rank of a run as the rules see it. `loading` is that of the loader that the steps wait for longest; where
    several feed them, `other_loadings` are the others. `stacks` is None where none were sampled. `anomaly` is what anomaly
    detection did, None where it was off or not seen; `input_free` is None where no probe measured the step whose batch is
    ready."""

    manifest: RankManifest
    steps: Steps
    loading: Loading
    device: Device
    host: Host
    ranks: Ranks
    other_loadings: tuple[Loading, ...] = ()
    stacks: Stacks | None = None
    anomaly: AnomalyWork | None = None
    input_free: InputFreeStep | None = None

    @property
    def facts(self) -> Mapping[str, Any]:
        return self.manifest.facts

    @property
    def is_imported(self) -> bool:
        """Say whether the rank was read from a trace, and is not a whole run of Stepscope."""
        return self.manifest.is_trace

    @property
    def shows_no_workers(self) -> bool:
        """Say whether the trace has the iterator of a loader without workers; a trace knows no more of its loader."""
        return self.facts.get("data_loader") == "single_process"

    @property
    def data_wait_ns(self) -> float:
        """The wait for the loader in the mean step: the most that any change to it can save."""
        mean_ns = self.loading.mean_wait_ns
        if not self.is_imported:
            return mean_ns
        return min(mean_ns, self.loading.wait_ns + max(self.loading.loop.model.extra_ns, 0.0))

    @property
    def transfer_ns(self) -> float:
        """Communication that holds the mean step, the wait for slower ranks taken out.

        A rank that comes early is held until the last one is there; only what the least held rank spends is transfer: in
        each step by itself, because the ranks may take turns.
        """
        known = self.ranks.judgement.transfer_ns
        held = [self.steps.phases_ns["communication"], *(peer.communication_ns for peer in self.ranks.peers)]
        return min(held if known is None else [*held, known])

    @property
    def backwards_per_step(self) -> float:
        return self._mean_count("backwards")

    @property
    def backwards_per_update(self) -> float:
        updates = self._mean_count("optimizer_steps")
        return self.backwards_per_step / updates if updates else 0.0

    def _mean_count(self, name: str) -> float:
        return float(read_integers(self.steps.rows, name)[self.steps.selection.kept].mean())

    @property
    def needless_syncs_frac(self) -> float:
        """Share of the reductions of gradients that accumulating them without would save, 0 where nothing is known."""
        ddp, backwards = self.ranks.ddp, self.backwards_per_update
        if ddp is None or self.ranks.world_size < 2 or not ddp.syncs_all or backwards < MIN_ACCUMULATED:
            return 0.0
        return 1.0 - 1.0 / backwards

    @property
    def has_odd_buckets(self) -> bool:
        ddp = self.ranks.ddp
        return ddp is not None and self.ranks.world_size > 1 and (ddp.has_tiny_buckets or ddp.has_one_bucket)

    @property
    def lacks_processors(self) -> bool:
        """Say whether the processors that the run may use are all in use, or the training thread queues for one."""
        load = self.host.load
        queued_frac = load.queued_frac or 0.0 if load is not None else 0.0
        return queued_frac >= QUEUED_FRAC or self.demand_frac >= CAPPED_DEMAND_FRAC

    @property
    def is_capped(self) -> bool:
        """Say whether there is a worker per core, they compute rather than wait, and no processor is left for more."""
        busy = self.loading.cpu_need > CAPPED_NEED and self.demand_frac >= CAPPED_DEMAND_FRAC
        return busy and self.loading.loop.model.workers >= int(self.host.cores)

    @property
    def demand_frac(self) -> float:
        """Cores in use while steps ran over those that can be used; estimated from the work where it was not sampled."""
        load, loop = self.host.load, self.loading.loop
        if load is not None and load.in_use is not None:
            return load.in_use / self.host.cores
        model = loop.model
        per_batch = self.loading.batch_ns * self.loading.cpu_frac
        own = (1.0 - self.loading.wait_frac) * model.steps[0].cores if model.steps else 0.0
        making = per_batch * loop.fetches / loop.regular_step_ns if loop.regular_step_ns else 0.0
        return (making + own) / model.cores + loop.contention_frac
