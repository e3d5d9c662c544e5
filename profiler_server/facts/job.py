"""The ranks of a job: who waits for whom, for what, and how they exchange gradients."""

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
    """One part of the step that was longer: a phase; `garbage` for garbage collection within phases, `no_processor`
    for time in which the training process had none, `between` for what lies between steps, `checkpoint` for saving."""

    name: str
    excess_ns: float
    share_frac: float


@dataclass(frozen=True)
class Garbage:
    """Garbage collection that stops one rank after the other. `chance` is that of a pause on one rank in one step.

    Pauses of all ranks at the same step would make the mean step `gain_ns` shorter.
    """

    pause_ns: float
    chance: float
    gain_ns: float


@dataclass(frozen=True)
class Pause:
    """A few `steps` in which the others waited so long for one rank that it is most of all waiting.

    The longest of `count` was `waited_ns` for `rank`, for what that did in `step`. Without all of them the mean step would
    be `mean_ns` shorter.
    """

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
    """The rank that comes latest to the meetings of the ranks, slow or not.

    `own_ns` is its mean step outside of collectives, `others_ns` the median of the `others` that it is set beside;
    `late_frac` is the difference against the whole step. `phase` is the phase that exceeds the others' median by most.
    `gain_ns` is what the step gains at most if the rank were in time, and those that are slow as well; `causes` is what it
    did longer than the others, the longest first.
    """

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
        """Say whether the rank is late most of all because it waits for its data."""
        excess_ns = self.phase_ns - self.phase_others_ns
        return self.phase == "data_wait" and excess_ns >= MOST_FRAC * (self.own_ns - self.others_ns)


@dataclass(frozen=True)
class RankComparison:
    """What ranks that were set beside each other tell, whatever the verdict. `source` is what the meetings are.

    `blame_ns` is how much shorter the mean step gets at most with a rank alone in time, `last_frac` in which share of the
    steps each is the last. `least_frac` is the least slowdown of a rank, as a share of the step, that would be named.
    `residual_ns` is the 50th and the 95th percentile of the error of the lateness. `left_out` are ranks that have too
    little in common with the others. `is_hidden` says that nothing tells working from waiting. `transfer_ns` is what the
    rank that waits least is held in the mean step, in each step by itself. Of a pipeline of several `stages` each rank is
    set beside those of its own stage. `pause` is a wait of a few steps that is in none of the other figures.
    """

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
        """How many ranks wait for one that is late."""
        return len(self.blame_ns) - 1

    def share(self, time_ns: float) -> float:
        """Return a time as a share of the step."""
        return time_ns / self.step_ns if self.step_ns else 0.0


class _NamesNobody:
    culprits: ClassVar[tuple[int, ...]] = ()
    gain_ns: ClassVar[float] = 0.0


class _NotCompared(_NamesNobody):
    comparison: ClassVar[None] = None


@dataclass(frozen=True)
class NotJudged(_NotCompared):
    """Fewer than two ranks have figures in common."""

    left_out: tuple[int, ...] = ()


@dataclass(frozen=True)
class Apart(_NotCompared):
    """The ranks were not in their collectives together: each needs another time for the same ones."""

    lasted_ns: Mapping[int, int]


@dataclass(frozen=True)
class Strangers(_NotCompared):
    """`ranks` were not in the collectives of `others`: their messages have other sizes (`by` is bytes), or one side left
    them at other moments than the other, however the clocks are set (times)."""

    ranks: tuple[int, ...]
    others: tuple[int, ...]
    by: Literal["bytes", "times"]


@dataclass(frozen=True)
class Alike(_NamesNobody):
    """No rank holds the others up by more than would be named."""

    comparison: RankComparison


@dataclass(frozen=True)
class Unsure(_NamesNobody):
    """A rank is behind by so much that it would be named, and noise may explain it."""

    comparison: RankComparison


@dataclass(frozen=True)
class Stretch:
    """The steps from `first` to `last`, in which a rank is late by `late_ns` in the mean; in the others it is in time."""

    first: int
    last: int
    late_ns: float
    is_from_start: bool


@dataclass(frozen=True)
class Slow:
    """The latest rank holds the others up, by more than noise explains, and so do those that are `also_slow`.

    Where only long waits now and then tell that, `longest` is for how many of how many of these it was the last.
    `stretch` is the part of the run in which the one slow rank is late, None where that has no clear begin or end.
    """

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
    """Up to `step` the others waited for one rank, from there on for another; by how much in the mean of these steps."""

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
    """The ranks come last by turns. `gain_ns` is what a step would be shorter if they came together.

    `causes` are what the last one does longer than the others; `is_one_phase` says that one phase is most of that, by more
    than a want of processors explains. `entropy_frac` is 1 where all come last equally often.
    """

    comparison: RankComparison
    gain_ns: float
    causes: tuple[Cause, ...]
    entropy_frac: float
    is_one_phase: bool = False
    culprits: ClassVar[tuple[int, ...]] = ()


@dataclass(frozen=True)
class HeavyStage:
    """The stage of a pipeline that computes longest, and the mean of the other stages; times are of the mean step.

    With the same work in all stages the mean step would be `gain_ns` shorter.
    """

    comparison: RankComparison
    stage: int
    culprits: tuple[int, ...]
    own_ns: float
    others_ns: float
    gain_ns: float


@dataclass(frozen=True)
class UnevenWork:
    """Within the stages of a pipeline one micro-batch takes longer than another: alike, the step were `gain_ns` shorter."""

    comparison: RankComparison
    gain_ns: float
    culprits: ClassVar[tuple[int, ...]] = ()


RankVerdict = NotJudged | Apart | Strangers | Alike | Unsure | Slow | Handover | Turns | HeavyStage | UnevenWork
"""Who waits for whom in a job: one answer, with whom it names (`culprits`) and what the mean step gains (`gain_ns`)."""


@dataclass(frozen=True)
class Ddp:
    """Settings of the first DistributedDataParallel. A count is 0, and `bucket_bytes` empty, where it was not noted."""

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
        """Say whether gradients go out in many small pieces: each costs a round trip."""
        count = len(self.bucket_bytes)
        return count >= MANY_BUCKETS and sum(self.bucket_bytes) < count * SMALL_BUCKET_BYTES

    @property
    def has_one_bucket(self) -> bool:
        """Say whether all gradients go out together, when the backward is over: nothing hides that."""
        return len(self.bucket_bytes) == 1 and self.bucket_bytes[0] >= LEAST_SPLIT_BYTES

    @property
    def syncs_all(self) -> bool:
        """Say whether (nearly) every backward reduces the gradients."""
        return self.backwards > 0 and self.synced_backwards >= SYNCED_FRAC * self.backwards


@dataclass(frozen=True)
class Peer:
    """Another rank of the run: what its mean step is made of."""

    rank: int
    phases_ns: Mapping[str, float]


@dataclass(frozen=True)
class Ranks:
    """The other ranks of the run, as far as they were read, and who waits for whom, as the Ranks page says it.

    `ddp` is None where DistributedDataParallel was not seen, `parallel_devices` those of nn.DataParallel. `is_sharded` says
    that the ranks scatter gradients and gather parameters, as FSDP and DeepSpeed's ZeRO do. `culprit` is the function that
    is most of what makes the slow rank late, where that is no part of the others' step.
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
        """Return what the job gains at most where a rank, and the others like it, spend this share less of some phases.

        It waits on for what a slow rank still does. On a slow rank the change is about the delay, or about what all do.
        """
        verdict = self.verdict
        if not isinstance(verdict, Slow) or verdict.comparison.is_hidden or self.is_pipeline:
            return math.inf
        saved = {peer.rank: saved_frac * sum(peer.phases_ns[phase] for phase in phases) for peer in self.peers}
        of_slow = min((saved_ns for rank, saved_ns in saved.items() if rank in verdict.culprits), default=math.inf)
        of_others = min(
            (saved_ns for rank, saved_ns in saved.items() if rank not in verdict.culprits), default=math.inf
        )
        return min(of_slow, max(verdict.gain_ns, of_others))
