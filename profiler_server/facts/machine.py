"""What runs the steps: devices and their work, a replayed window, the processors of the host, and the notes that a rank
has of itself. Rules and sentences on the device and the host read these facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from profiler_server.diagnosis.limits.facts import BUSIER_FRAC, DISPATCH_FRAC, MOST_ERROR_FRAC


@dataclass(frozen=True)
class DeviceTimes:
    """The time of a device from its first to its last work in a detailed window, divided as TraceLens does; the four
    parts sum to the total. Several windows are added up."""

    total_ns: int
    computation_ns: int
    exposed_communication_ns: int
    exposed_copy_ns: int
    idle_ns: int


@dataclass(frozen=True)
class IdleCauses:
    """Idle time of a device's streams in ns, summed by the cause of the gap before a piece of work, as HTA (Holistic
    Trace Analysis) defines the causes: the host launched it late, the gap is short (`kernel_wait`), or another cause.
    """

    host_wait: int
    kernel_wait: int
    other: int


@dataclass(frozen=True)
class DeviceSummary(DeviceTimes):
    """The activity of a device in the detailed windows: times from its first to its last work, and shares of the steps
    recorded by torch.profiler. A share is None if unknown.

    `steps_ns` is the total time of these steps. `linked_only` leaves out work whose launch on the host is unknown.
    `utilization_frac` is the share of the steps with a kernel, `sm_efficiency_frac` the share with filled
    multiprocessors. `occupancy_frac` is the mean occupancy over the time of kernels, `tensor_core_frac` the share of
    that time on tensor cores."""

    linked_only: DeviceTimes
    utilization_frac: float | None
    sm_efficiency_frac: float | None
    occupancy_frac: float | None
    tensor_core_frac: float | None
    idle_causes_ns: IdleCauses
    steps_ns: int = 0

    @property
    def whole_ns(self) -> int:
        """The time in ns of which shares are taken: the time of the steps, or the time from the first to the last
        work if that is longer."""
        return max(self.steps_ns, self.total_ns)

    @property
    def idle_frac(self) -> float | None:
        """The share of the steps in which the device is idle, also before its first and after its last work; None if
        the steps have no time."""
        active_ns = self.total_ns - self.idle_ns
        return 1.0 - active_ns / self.whole_ns if self.whole_ns else None


@dataclass(frozen=True)
class HeldClock:
    """A GPU whose clock was throttled.

    `held_frac` is the share of samples in which heat or another limit of the hardware lowered the clock; `is_heat`
    is whether heat ever did. `clock_hz` is the median clock in these samples, `usual_hz` the highest clock in the
    other samples; 0 without others."""

    gpu: str
    held_frac: float
    clock_hz: float
    usual_hz: float
    is_heat: bool

    @property
    def lost_frac(self) -> float:
        """The share of the usual clock rate that was lost, averaged over all samples, throttled or not."""
        return self.held_frac * max(1.0 - self.clock_hz / self.usual_hz, 0.0) if self.usual_hz else 0.0


@dataclass(frozen=True)
class Gain:
    """The share of the replayed window that a change saves: at least (`low_frac`, by a poor version of the change),
    usually (`frac`), and at best (`high_frac`)."""

    low_frac: float
    frac: float
    high_frac: float


@dataclass(frozen=True)
class Sighting:
    """A pattern in a replayed window. `count` and `spent_ns` are how often it occurs and how long it takes, per
    step. `examples` name the most costly cases. `gain` is the saving if the pattern were absent, None if the replay
    is not trusted. `figures` are further numbers by name."""

    count: float
    spent_ns: float
    examples: tuple[str, ...] = ()
    gain: Gain | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Replayed:
    """The replay of a detailed window with `steps` steps. The window took `measured_ns`. Worked out again on a model,
    unchanged, it takes `replayed_ns`.

    `gains` maps a change to the saving in its replay. `seen` maps the name of each pattern that was found to its
    sighting."""

    steps: int
    measured_ns: float
    replayed_ns: float
    gains: Mapping[str, Gain] = field(default_factory=dict)
    seen: Mapping[str, Sighting] = field(default_factory=dict)

    @property
    def error_frac(self) -> float:
        return self.replayed_ns / self.measured_ns - 1.0 if self.measured_ns else 0.0

    @property
    def is_valid(self) -> bool:
        return abs(self.error_frac) <= MOST_ERROR_FRAC


@dataclass(frozen=True)
class MemoryGrowth:
    """Resident memory of the training process, after the first fifth of the run: the median of each sixth, in order.

    `elapsed_ns` is the time between the middles of the first and the last sixth.
    """

    levels_bytes: tuple[float, ...]
    elapsed_ns: int

    @property
    def grown_bytes(self) -> float:
        return self.levels_bytes[-1] - self.levels_bytes[0]

    @property
    def is_steady(self) -> bool:
        """Whether every sixth adds at least a quarter of the mean growth per sixth. A filling cache would stop
        growing."""
        least = 0.25 * self.grown_bytes / (len(self.levels_bytes) - 1)
        return all(after - before > max(least, 0.0) for before, after in pairwise(self.levels_bytes))


@dataclass(frozen=True)
class HostLoad:
    """Processor use while steps ran, as mean numbers of cores: of the training `process` (without workers), of all
    `workers` together, of the whole machine (`system`), and of other programs (`others`, never negative). A field is
    None if not sampled.

    `stretch` is (processor time + queueing time) / processor time: of the workers if there are any, else of the
    process. `queued_frac` is the share of the training thread's time in which it waited for a processor;
    `workers_queued_frac` is the sum of this share over the workers. `usable` is the use of the cores that the run may
    use, None if only the whole machine was sampled. In that case, `others_anywhere` includes other programs on cores
    that the run may not use.

    `throttled_frac` is the share of the control group's (cgroup's) periods in which its processor limit stopped it;
    `throttled_cores` is the mean number of stopped processors. `memory_stall_frac` is the share of time in which a
    process of the group waited for memory; `system_stall_frac` is the same for the whole system, if only that was
    sampled. `busiest_worker` is the use of cores by the worker with the largest use, `main_thread` by the main
    thread, and `python_threads` by the process's other Python threads. `growth` is that of the process's memory."""

    process: float | None
    workers: float
    system: float | None
    others: float
    stretch: float | None = None
    growth: MemoryGrowth | None = None
    queued_frac: float | None = None
    workers_queued_frac: float | None = None
    others_anywhere: float = 0.0
    usable: float | None = None
    throttled_frac: float | None = None
    throttled_cores: float | None = None
    memory_stall_frac: float | None = None
    busiest_worker: float | None = None
    python_threads: float | None = None
    system_stall_frac: float | None = None
    main_thread: float | None = None

    @property
    def in_use(self) -> float | None:
        """The mean number of busy cores among those that the run may use, or of the whole machine if only that was
        sampled; None if not sampled."""
        return self.system if self.usable is None else self.usable


@dataclass(frozen=True)
class DeviceShares:
    """The device's time by activity, as shares of the detailed steps. `unfed` is idle time because the host is late."""

    compute: float
    communication: float
    idle: float
    unfed: float


@dataclass(frozen=True)
class DeviceEntry:
    """One accelerator of the host, as its driver describes it."""

    kind: str
    compute_capability: str | None = None


@dataclass(frozen=True)
class HostWaits:
    """How long the device waits for the host in the mean step of a replayed window, which takes `step_ns`. `names`
    are the host's functions meanwhile with their ns per step, longest first."""

    waits_ns: float
    step_ns: float
    names: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Device:
    """The devices of the rank and their work. `summary` is None without a detailed window. `dispatch_frac` is the share
    of the step that the host spends in operators, `full_precision_frac` the share of kernel time that multiplies 32-bit
    floats in full precision. A figure is None if unknown.

    `replay` is the replay of the last detailed window, None if there is no window or no launch is known.
    `memory_peak_frac` is the largest share of a device's memory that was in use. `held_clock` is None if no clock
    was throttled."""

    entries: tuple[DeviceEntry, ...]
    summary: DeviceSummary | None
    full_precision_frac: float | None
    dispatch_frac: float | None
    replay: Replayed | None = None
    memory_peak_frac: float | None = None
    held_clock: HeldClock | None = None
    host_waits: HostWaits | None = None

    @property
    def is_used(self) -> bool:
        """Whether steps run on a device other than the processors: CUDA, ROCm, XPU, MTIA and the like."""
        return any(entry.kind not in ("cpu", "mps") for entry in self.entries)

    @property
    def cuda_generation(self) -> int:
        """The major compute capability of the CUDA device (7 Volta and Turing, 8 Ampere, 9 Hopper); 0 for none."""
        found = next((entry.compute_capability for entry in self.entries if entry.kind == "cuda"), None)
        major = (found or "").split(".")[0]
        return int(major) if major.isdecimal() and len(major) < 4 else 0

    @property
    def shares(self) -> DeviceShares | None:
        """The device's times as shares of the steps; None if unknown. Idle time includes that before its first and
        after its last work."""
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
        """Return what a change saves in the replayed window; None if unknown, or if the replay is not trusted."""
        return self.replay.gains.get(change) if self.replay is not None and self.replay.is_valid else None

    @property
    def is_dispatching(self) -> bool:
        """Whether the host spends its time in operators; true if unknown. If false, an idle device waits for Python
        code."""
        return self.dispatch_frac is None or self.dispatch_frac >= DISPATCH_FRAC


@dataclass(frozen=True)
class Host:
    """The processors: `cores` is the number that the run may use, `load` their load while steps ran, None if not
    sampled.

    `load.others` is the use of these cores by other programs. `first` and `last` are the loads during the first and
    the last sixth of the steps, None if not sampled."""

    cores: float
    load: HostLoad | None
    first: HostLoad | None = None
    last: HostLoad | None = None

    @property
    def others_frac(self) -> float:
        """The share of the cores that other programs took; 0 if not sampled."""
        return self.load.others / self.cores if self.load is not None and self.cores else 0.0

    @property
    def got_busier(self) -> bool:
        """Whether the host was busier at the end of the run than at its start: other programs used the processors more,
        or work waited longer for a processor."""
        if self.first is None or self.last is None:
            return False
        taken = (self.last.others - self.first.others) / self.cores
        queued = (self.last.queued_frac or 0.0) - (self.first.queued_frac or 0.0)
        stretched = (self.last.stretch or 1.0) - (self.first.stretch or 1.0)
        return max(taken, queued, stretched) >= BUSIER_FRAC


@dataclass(frozen=True)
class RecordingCost:
    """The cost of recording on the training thread, and how it was measured."""

    training_thread_ns_per_step: float
    share_frac: float | None
    how: str


@dataclass(frozen=True)
class RankNotes:
    """The entries of a rank's manifest that rules read. `is_trace`: the rank was imported from a trace. `switched` maps
    each switch of PyTorch that the script has changed to the line that changes it back."""

    rank: int
    is_trace: bool
    cpu_count: int | None
    usable_cores: float | None
    torch_threads: int | None
    overhead: RecordingCost
    facts: Mapping[str, Any]
    warnings: tuple[Any, ...] = ()
    switched: Mapping[str, str] = field(default_factory=dict)

    @property
    def subnormal_frac(self) -> float:
        """The share of subnormal numbers among those that were read of what backwards keep; 0 if none were read."""
        noted = self.facts.get("subnormals")
        counts = [noted.get(name) for name in ("subnormal", "read")] if isinstance(noted, Mapping) else []
        found = [count for count in counts if isinstance(count, int) and count > 0]
        return min(found[0] / found[1], 1.0) if len(found) == 2 else 0.0

    @property
    def lacks_steps(self) -> bool:
        """Whether the rank is a trace without steps. Its one step then lasts from its first kernel to its last."""
        return any(warning.code == "trace_without_steps" for warning in self.warnings)


@dataclass(frozen=True)
class RepeatedNodes:
    """Backward nodes of the step `step` whose operators computed what an earlier operator of the forward had computed.

    `nodes` are ranges as in `UnusedGradients`. `time_ns` is their time in the step, None if no window shows it."""

    step: int
    nodes: tuple[tuple[int, int, int, int], ...]
    time_ns: float | None = None


@dataclass(frozen=True)
class RepeatedBackwards(RepeatedNodes):
    """Nodes that run again in `backwards` backwards of a step, called at the line `place`, which might be one: of
    `losses` that are added up, of one result for different `inputs`, or of the `parts` of one result."""

    kind: Literal["losses", "inputs", "parts"] = "losses"
    backwards: int = 2
    place: str = ""


@dataclass(frozen=True)
class SpareNodes(RepeatedNodes):
    """Nodes whose operators computed rows of which a selection then kept the share `used_frac`."""

    used_frac: float = 1.0
