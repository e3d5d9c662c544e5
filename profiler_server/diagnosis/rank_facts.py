"""What a rule is given of the other ranks, and of how they exchange gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from profiler_server.analysis.ranks.spread import Ddp
from profiler_server.analysis.ranks.stragglers import Judgement, Straggler
from profiler_server.analysis.stacks.naming import NamedFunction

_MOST_OF = 0.5


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
