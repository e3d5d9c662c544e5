"""The ranks of a job: who waits for whom, for what, and how they exchange gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from profiler_server.facts.steps import NamedFunction

COLLECTING, STARVED, BETWEEN, SAVING = "garbage", "no_processor", "between", "checkpoint"
"""Causes that are no phase."""
BEHIND_FRAC = 0.03
"""A rank that is late by a smaller share of the step is not named."""
_MANY_BUCKETS, _SMALL_BUCKET_BYTES = 8, 1 << 20
_LEAST_SPLIT_BYTES = 4 << 20
_MOST_OF = 0.5


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
class Strangers:
    """`ranks` were not in the collectives of `others`: their messages have other sizes (`by` is bytes), or one side left
    them at other moments than the other, however the clocks are set (times)."""

    ranks: tuple[int, ...]
    others: tuple[int, ...]
    by: Literal["bytes", "times"]


@dataclass(frozen=True)
class Rotation:
    """The ranks come last by turns. `waited_ns` is what a step would be shorter if they came together.

    `causes` are what the last one does longer than the others; `is_one_phase` says that one phase is most of that, by more
    than a want of processors explains. `entropy_frac`, which `report --json` shows, is 1 where all come last equally often.
    """

    waited_ns: float
    waited_frac: float
    causes: tuple[Cause, ...]
    entropy_frac: float
    is_one_phase: bool = False


@dataclass(frozen=True)
class Handover:
    """Up to `step` the others waited for one rank, from there on for another; by how much in the mean of these steps."""

    step: int
    before: int
    before_ns: float
    after: int
    after_ns: float


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
class Straggler:
    """The rank that comes latest to the meetings of the ranks.

    `own_ns` is its mean step outside of collectives, `others_ns` the median of the others; `behind_frac` is the
    difference against that, `late_frac` against the whole step. `phase` is the phase that exceeds the others' median by
    most. `is_slow` says that the rank is behind by more than noise explains, `is_unsure` that it is behind and noise may
    explain it. `others` is how many there are. `last_frac` is the share of the steps in which it was the last;
    `gain_ns` what the step gains at most if it were in time, and those that are slow as well: how long they hold the job
    up; `causes` what it did longer than the others in the
    steps to which it came last, the longest first. Where only long waits now and then tell that it is slow, `longest` is
    for how many of how many of these it was the last.
    """

    rank: int
    own_ns: float
    others_ns: float
    behind_frac: float
    phase: str
    phase_ns: float
    phase_others_ns: float
    others: int
    is_slow: bool
    is_unsure: bool
    late_frac: float = 0.0
    last_frac: float = 0.0
    gain_ns: float = 0.0
    causes: tuple[Cause, ...] = ()
    longest: tuple[int, int] | None = None


@dataclass(frozen=True)
class HeavyStage:
    """The stage of a pipeline that computes longest, and the mean of the other stages; times are of the mean step.

    With the same work in all stages the mean step would be `gain_ns` shorter.
    """

    stage: int
    ranks: tuple[int, ...]
    own_ns: float
    others_ns: float
    gain_ns: float


@dataclass(frozen=True)
class Judgement:
    """Who waits for whom. `source` is what the meetings are: collectives, or the steps.

    `blame_ns` is how much shorter the mean step gets at most with a rank alone in time, `last_frac` in which
    share of the steps each is the last. `least_frac` is the least slowdown of a rank, as a share of the step, that would be named.
    `residual_ns` is the 50th and the 95th percentile of the error of the lateness. `left_out` are ranks that have too
    little in common with the others. `is_hidden` says that nothing tells working from waiting. `transfer_ns` is
    what the rank that waits least is held in the mean step, in each step by itself. Of a pipeline of several
    `stages` each rank is set beside those of its own stage, and `heavy_stage` is the one that the others wait for.
    `apart_ns` is how long each rank needs for the same collectives, where that tells that they were not in them together:
    nobody is judged then. `pause` is a wait of a few steps that is in none of the other figures; `handover` says that the
    others waited for one rank first, and for another one later.
    """

    straggler: Straggler | None = None
    rotation: Rotation | None = None
    source: Source = "steps"
    meetings: int = 0
    steps: int = 0
    step_ns: float = 0.0
    blame_ns: Mapping[int, float] | None = None
    last_frac: Mapping[int, float] | None = None
    least_frac: float | None = None
    residual_ns: tuple[float, float] = (0.0, 0.0)
    left_out: tuple[int, ...] = ()
    also_slow: tuple[int, ...] = ()
    is_hidden: bool = False
    uneven_correlation: float | None = None
    garbage: Garbage | None = None
    transfer_ns: float | None = None
    stages: int = 1
    heavy_stage: HeavyStage | None = None
    apart_ns: Mapping[int, int] | None = None
    strangers: Strangers | None = None
    pause: Pause | None = None
    handover: Handover | None = None

    @property
    def are_apart(self) -> bool:
        """The ranks cannot be of one job."""
        return bool(self.apart_ns) or self.strangers is not None

    @property
    def gain_frac(self) -> float:
        """The share of the step by which the slow ranks hold the others up."""
        return self.straggler.gain_ns / self.step_ns if self.straggler is not None and self.step_ns else 0.0


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
        return count >= _MANY_BUCKETS and sum(self.bucket_bytes) < count * _SMALL_BUCKET_BYTES

    @property
    def has_one_bucket(self) -> bool:
        """Say whether all gradients go out together, when the backward is over: nothing hides that."""
        return len(self.bucket_bytes) == 1 and self.bucket_bytes[0] >= _LEAST_SPLIT_BYTES

    @property
    def syncs_all(self) -> bool:
        """Say whether (nearly) every backward reduces the gradients."""
        return self.backwards > 0 and self.synced_backwards >= 0.95 * self.backwards


@dataclass(frozen=True)
class Peer:
    """Another rank of the run: its mean step, and how much of that it was held in collectives."""

    rank: int
    step_ns: float
    communication_ns: float


@dataclass(frozen=True)
class Ranks:
    """The other ranks of the run, as far as they were read, and who waits for whom, as the Ranks page says it.

    `ddp` is None where DistributedDataParallel was not seen, `parallel_devices` those of nn.DataParallel. `is_sharded` says
    that the ranks scatter gradients and gather parameters, as FSDP and DeepSpeed's ZeRO do. `culprit` is the function that
    is most of what makes the slow rank late, where that is no part of the others' step.
    """

    world_size: int
    peers: tuple[Peer, ...]
    judgement: Judgement = field(default_factory=Judgement)
    ddp: Ddp | None = None
    parallel_devices: int = 0
    is_sharded: bool = False
    culprit: NamedFunction | None = None

    @property
    def straggler(self) -> Straggler | None:
        return self.judgement.straggler

    def find_bound_ns(self, rank: int) -> float:
        """Return what a rank whose loader holds the others up saves at most by a faster one: then it waits for them."""
        slow = self.straggler
        bounds = slow is not None and slow.rank == rank and self.waits_for_one_loader and not self.judgement.is_hidden
        return slow.gain_ns if slow is not None and bounds else math.inf

    @property
    def waits_for_one_loader(self) -> bool:
        """Say whether one rank is slow, most of all because it waits for its data."""
        slow = self.straggler
        if slow is None or not slow.is_slow or slow.phase != "data_wait":
            return False
        return slow.phase_ns - slow.phase_others_ns >= _MOST_OF * (slow.own_ns - slow.others_ns)
