"""The ranks of a job: which rank waits for which, the reason, and how they exchange gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from profiler_server.diagnosis.limits.facts import (
    LEAST_SPLIT_BYTES,
    MANY_BUCKETS,
    MOST_FRAC,
    SMALL_BUCKET_BYTES,
    SYNCED_FRAC,
)
from profiler_server.facts.steps import NamedFunction

COLLECTING, STARVED, BETWEEN, SAVING = "garbage", "no_processor", "between", "checkpoint"
"""Causes that are no phase."""


@dataclass(frozen=True)
class Cause:
    """One cause of a rank's lateness. `excess_ns` is by how much the cause takes longer on this rank than on the other
    ranks, as a mean per step. `share_frac` is the share of the rank's lateness that comes from this cause.

    `name` is a phase, `garbage` for collections within phases, `no_processor` for time without a processor,
    `between` for time between steps, or `checkpoint` for saving."""

    name: str
    excess_ns: float
    share_frac: float


@dataclass(frozen=True)
class Garbage:
    """Garbage collection that pauses the ranks at different steps. `pause_ns` is the mean length of a pause. `chance`
    is the share of steps in which a single rank pauses.

    The mean step would be `gain_ns` shorter if all ranks paused at the same step."""

    pause_ns: float
    chance: float
    gain_ns: float


@dataclass(frozen=True)
class Pause:
    """A few steps with very long waits for the last rank, which make up most of all waiting.

    There are `count` such waits. In the longest one, the ranks waited `waited_ns` for `rank` in `step`, because of
    `causes`. Without these `count` waits the mean step would be `mean_ns` shorter. `steps` are the steps with these
    waits, and the step before each, in which the rank may have lost its time. All other figures of the comparison
    leave out `steps`."""

    rank: int
    step: int
    waited_ns: float
    count: int
    steps: tuple[int, ...]
    mean_ns: float
    causes: tuple[Cause, ...]


Source = Literal["collectives", "steps"]


@dataclass(frozen=True)
class LateRank:
    """The rank that comes latest to the points where the ranks wait for each other. It need not be slow.

    `own_ns` is its mean step outside of collectives. `others_ns` is the median of the same time over `others` other
    ranks. `late_frac` is `own_ns` minus `others_ns`, divided by the mean step. `phase` is the phase with the largest
    excess over the others' median: in the mean step it takes `phase_ns` on this rank, and `phase_others_ns` in the
    median of the other ranks. `gain_ns` is the most that the mean step gains if this rank and all slow ranks are in
    time. `causes` are what took longer on this rank than on the other ranks, longest first; empty if unknown."""

    rank: int
    own_ns: float
    others_ns: float
    phase: str
    phase_ns: float
    phase_others_ns: float
    others: int
    late_frac: float = 0.0
    gain_ns: float = 0.0
    causes: tuple[Cause, ...] = ()

    @property
    def waits_for_data(self) -> bool:
        """Whether the rank is late mainly because it waits for its own data."""
        excess_ns = self.phase_ns - self.phase_others_ns
        return self.phase == "data_wait" and excess_ns >= MOST_FRAC * (self.own_ns - self.others_ns)


@dataclass(frozen=True)
class RankComparison:
    """How late each rank comes to the points where the ranks wait for each other ("meetings"). `source` says what the
    meetings are: collectives, or the step as a whole.

    `meetings` and `steps` are the numbers of compared meetings and steps; `step_ns` is the mean step. `latest` is the
    rank that comes latest. `blame_ns` maps a rank to the most by which the mean step shortens if only this rank were in
    time. `last_frac` maps a rank to the share of the steps in which it is last. `least_frac` is the smallest slowdown
    that would be reported, as a share of the mean step. `residual_ns` has the 50th and the 95th percentile of the error
    of the lateness. `left_out` are ranks that share too few meetings with the other ranks. `is_hidden` means that
    working and waiting cannot be separated.

    `transfer_ns` is the time in the mean step for which collectives hold the rank that is held least, None if unknown.
    In a pipeline of several `stages`, each rank is compared within its own stage. `uneven_correlation` tells how much
    forward and backward vary together, which unequal input causes; None if they do not. `garbage` is None if collecting
    at the same steps would gain little. `pause` is a wait in a few steps that no other figure includes."""

    latest: LateRank
    source: Source
    meetings: int
    steps: int
    step_ns: float
    blame_ns: Mapping[int, float]
    last_frac: Mapping[int, float]
    least_frac: float | None = None
    residual_ns: tuple[float, float] = (0.0, 0.0)
    left_out: tuple[int, ...] = ()
    is_hidden: bool = False
    transfer_ns: float | None = None
    stages: int = 1
    uneven_correlation: float | None = None
    garbage: Garbage | None = None
    pause: Pause | None = None

    @property
    def others(self) -> int:
        """The number of ranks that wait for the latest rank."""
        return len(self.blame_ns) - 1

    def share(self, time_ns: float) -> float:
        return time_ns / self.step_ns if self.step_ns else 0.0


class _NamesNobody:
    culprits: ClassVar[tuple[int, ...]] = ()
    gain_ns: ClassVar[float] = 0.0


class _NotCompared(_NamesNobody):
    comparison: ClassVar[None] = None


@dataclass(frozen=True)
class NotJudged(_NotCompared):
    """Verdict: fewer than two ranks can be compared. `left_out` are ranks with too few meetings in common with the
    other ranks."""

    left_out: tuple[int, ...] = ()


@dataclass(frozen=True)
class Apart(_NotCompared):
    """Verdict: the ranks were in their collectives at different times, so they did not wait for each other.

    `lasted_ns` maps a rank to the time from its first to its last collective in the run. These times differ between
    ranks."""

    lasted_ns: Mapping[int, int]


@dataclass(frozen=True)
class Strangers(_NotCompared):
    """Verdict: `ranks` were never in a collective together with `others`, so they may belong to another job.

    `by` is what shows this. It is bytes if the messages of the two sides differ in size. It is times if the two
    sides left at different moments, even after the clocks are aligned."""

    ranks: tuple[int, ...]
    others: tuple[int, ...]
    by: Literal["bytes", "times"]


@dataclass(frozen=True)
class Alike(_NamesNobody):
    """Verdict: no rank delays the other ranks noticeably."""

    comparison: RankComparison


@dataclass(frozen=True)
class Unsure(_NamesNobody):
    """Verdict: one rank seems to delay the other ranks, but noise may explain its lateness."""

    comparison: RankComparison


@dataclass(frozen=True)
class Stretch:
    """The steps from `first` to `last`, in which a rank is usually late by `late_ns`. In all other steps this rank is
    in time. If `is_from_start`, it is late in the first part of the run; otherwise it is late in the last part.

    `in_time` is the judged step next to the stretch: the change lies between both, because steps beside the reading of
    a detailed window are not judged."""

    first: int
    last: int
    late_ns: float
    is_from_start: bool
    in_time: int

    @property
    def is_exact(self) -> bool:
        """Whether every step around the change was judged."""
        return self.in_time in (self.first - 1, self.last + 1)


@dataclass(frozen=True)
class Slow:
    """Verdict: the latest rank delays the other ranks by more than noise explains, and so do the ranks in `also_slow`.

    `longest` is None if the steps as a whole show this verdict. If only occasional long waits show it, `longest` has
    the number of long waits in which the rank was last, and the number of all long waits. `stretch` are the steps in
    which the only slow rank is late, None without a clear begin or end."""

    comparison: RankComparison
    also_slow: tuple[int, ...] = ()
    longest: tuple[int, int] | None = None
    stretch: Stretch | None = None

    @property
    def culprits(self) -> tuple[int, ...]:
        return (self.comparison.latest.rank, *self.also_slow)

    @property
    def gain_ns(self) -> float:
        return self.comparison.latest.gain_ns


@dataclass(frozen=True)
class Handover:
    """Verdict: the ranks waited for the rank `before` until `step`, and for the rank `after` from `step` on.

    `before_ns` and `after_ns` are the mean lateness of each of the two ranks in its own steps. If both ranks were in
    time, the mean step would be `gain_ns` shorter.
    """

    comparison: RankComparison
    step: int
    before: int
    before_ns: float
    after: int
    after_ns: float
    gain_ns: float

    @property
    def culprits(self) -> tuple[int, ...]:
        return (self.before, self.after)


@dataclass(frozen=True)
class Turns:
    """Verdict: the ranks come last in turns. The mean step would be `gain_ns` shorter if all ranks came at the same
    time.

    `causes` are what takes the last rank of a step longer than the other ranks. `is_one_phase` means that one phase
    has most of this extra time, and that its share of the extra time is much larger than its share of the work.
    `entropy_frac` is 1 if all ranks come last equally often, and 0 if one rank is always last."""

    comparison: RankComparison
    gain_ns: float
    causes: tuple[Cause, ...]
    entropy_frac: float
    is_one_phase: bool = False
    culprits: ClassVar[tuple[int, ...]] = ()


@dataclass(frozen=True)
class HeavyStage:
    """Verdict: pipeline stage `stage`, with the ranks `culprits`, has more work than the other stages.

    `own_ns` is its work in the mean step, `others_ns` the mean work of the other stages. With the same work in all
    stages the mean step would be `gain_ns` shorter.
    """

    comparison: RankComparison
    stage: int
    culprits: tuple[int, ...]
    own_ns: float
    others_ns: float
    gain_ns: float


@dataclass(frozen=True)
class UnevenWork:
    """Verdict: within a pipeline stage, some micro-batches take longer than others.

    With equal micro-batches the mean step would be `gain_ns` shorter."""

    comparison: RankComparison
    gain_ns: float
    culprits: ClassVar[tuple[int, ...]] = ()


RankVerdict = NotJudged | Apart | Strangers | Alike | Unsure | Slow | Handover | Turns | HeavyStage | UnevenWork
"""Who waits for whom in a job: one verdict, with the ranks that it names (`culprits`) and the gain of the mean step
(`gain_ns`)."""


@dataclass(frozen=True)
class Ddp:
    """Facts on the first DistributedDataParallel of the rank. `parameter_bytes` are the bytes of its parameters,
    `unused_bytes` the bytes of those that the forward does not use (None if not recorded). `bucket_bytes` are the sizes
    of the buckets in which it sends gradients. `finds_unused` and `shares_buckets` are its settings
    `find_unused_parameters` and `gradient_as_bucket_view`.

    `synced_backwards` of its `backwards` reduced the gradients between the ranks. Other counts that were not
    recorded are 0; a `bucket_bytes` that was not recorded is empty."""

    backend: str
    device_type: str
    parameter_bytes: int
    unused_bytes: int | None
    bucket_bytes: tuple[int, ...]
    finds_unused: bool
    shares_buckets: bool
    backwards: int
    synced_backwards: int

    @property
    def has_tiny_buckets(self) -> bool:
        """Whether gradients are sent in many small buckets. Each bucket costs a latency."""
        count = len(self.bucket_bytes)
        return count >= MANY_BUCKETS and sum(self.bucket_bytes) < count * SMALL_BUCKET_BYTES

    @property
    def has_one_bucket(self) -> bool:
        """Whether all gradients are sent in one large bucket after the backward. Nothing then hides their transfer."""
        return len(self.bucket_bytes) == 1 and self.bucket_bytes[0] >= LEAST_SPLIT_BYTES

    @property
    def syncs_all(self) -> bool:
        """Whether every backward, or nearly every backward, reduces the gradients between the ranks."""
        return self.backwards > 0 and self.synced_backwards >= SYNCED_FRAC * self.backwards


@dataclass(frozen=True)
class Peer:
    """Another rank of the run, with the ns of each phase in its mean step."""

    rank: int
    phases_ns: Mapping[str, float]


@dataclass(frozen=True)
class Ranks:
    """The other ranks of the run that were read, and the verdict on which rank waits for which.

    `world_size` is the number of ranks of the job. `ddp` is None if DistributedDataParallel was not found.
    `parallel_devices` is the number of devices of nn.DataParallel, 0 without it. `is_sharded` means that the ranks
    scatter gradients and gather parameters, as FSDP and DeepSpeed's ZeRO do. `culprit` is the function that takes most
    of the slow rank's delay. It is None if unknown, or if another rank spends the delayed phase in the same function.
    """

    world_size: int
    peers: tuple[Peer, ...]
    verdict: RankVerdict = field(default_factory=NotJudged)
    ddp: Ddp | None = None
    parallel_devices: int = 0
    is_sharded: bool = False
    culprit: NamedFunction | None = None

    @property
    def is_pipeline(self) -> bool:
        comparison = self.verdict.comparison
        return comparison is not None and comparison.stages > 1

    def bound_gain_ns(self, phases: tuple[str, ...], saved_frac: float) -> float:
        """Return an upper bound in ns on how much the job's mean step shortens if ranks spend the share `saved_frac`
        less time in `phases`.

        The bound is infinite in a pipeline, and if no rank is certainly slow. With a slow rank, the job still waits for
        the remaining work of that rank. The change shortens the delay of the slow rank, or the work of all ranks."""
        verdict = self.verdict
        if not isinstance(verdict, Slow) or verdict.comparison.is_hidden or self.is_pipeline:
            return math.inf
        saved = {peer.rank: saved_frac * sum(peer.phases_ns[phase] for phase in phases) for peer in self.peers}
        of_slow = min((saved_ns for rank, saved_ns in saved.items() if rank in verdict.culprits), default=math.inf)
        of_others = min(
            (saved_ns for rank, saved_ns in saved.items() if rank not in verdict.culprits), default=math.inf
        )
        return min(of_slow, max(verdict.gain_ns, of_others))
