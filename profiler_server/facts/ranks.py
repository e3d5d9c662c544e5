"""The figures of all ranks of a job, as pages and sentences use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from profiler_server.facts.job import RankVerdict
from profiler_server.facts.machine import DeviceTimes

MOST_RANKS = 4_096
"""The most ranks that are compared: the first ones."""


@dataclass(frozen=True)
class RankFigures:
    """The figures of one rank. Means are over its steady steps, or over batches if the rank only infers; `noun` says
    which, and `steps` is their number.

    `step_ns` is the mean step, `phases_ns` has its phases. `own_ns` is the mean step without the time held in
    collectives. `noise_ns` is the standard error of `own_ns`. `state` is that of the recording, such as complete.
    `starved_frac` is the share of its time in which the training process was ready to run and had no processor. If a
    rank has no figures, `reason` says why, and the figures are 0."""

    rank: int
    host: str
    state: str
    steps: int
    step_ns: float
    own_ns: float
    noise_ns: float
    phases_ns: Mapping[str, float]
    reason: str = ""
    noun: str = "step"
    has_device: bool = False
    starved_frac: float = 0.0


def find_noun(ranks: Sequence[RankFigures]) -> str:
    """Return the word for what the figures of all ranks together are means over: that of every rank with figures, else
    "step"."""
    nouns = {rank.noun for rank in ranks if rank.steps}
    return nouns.pop() if len(nouns) == 1 else "step"


@dataclass(frozen=True)
class RankGrid:
    """A figure by rank and by group of `size` consecutive steps. `values` has a row for each rank of `ranks` and a
    column for each group; `first` has each group's first step. A value is NaN if unknown."""

    ranks: tuple[int, ...]
    first: npt.NDArray[np.int64]
    size: int
    values: npt.NDArray[np.float64]


@dataclass(frozen=True)
class CollectiveRow:
    """All calls of one collective by one rank: `count` calls, of which `matched` were matched with calls of other
    ranks. Times and `bytes` are totals. `wait_ns` and `transfer_ns` are None if no other rank's calls match. `late` is
    the number of matched calls to which this rank came last. `bytes` is None if unknown.

    Bandwidths are over the transfer time, None if the sizes are unknown. Without matching calls, they are lower
    bounds, because they are over the rank's own time, which includes its waits."""

    rank: int
    name: str
    count: int
    matched: int
    total_ns: int
    transfer_ns: int | None
    wait_ns: int | None
    late: int
    bytes: int | None
    algorithm_bytes_per_s: float | None
    bus_bytes_per_s: float | None


Clock = Literal["one", "aligned", "unknown"]


@dataclass(frozen=True)
class Collectives:
    """The collectives of all ranks. `clock` says how times of ranks were compared: on one clock, on aligned clocks,
    or not at all. `clock_residual_ns` is the error left after the clocks were aligned. `in_windows` means that calls
    were recorded in detailed windows (by torch.profiler) only."""

    rows: tuple[CollectiveRow, ...]
    clock: Clock = "one"
    clock_residual_ns: float = 0.0
    in_windows: bool = False


@dataclass(frozen=True)
class SlowCall:
    """The collective call that exceeds its expected time most. It is call `number` (from 1) of the `count` calls with
    its name and group in a step.

    `transfer_ns` is its median transfer time over the steps. `expected_ns` is the transfer time at the speed of other
    calls.
    """

    group: str
    name: str
    number: int
    count: int
    bytes: int
    transfer_ns: float
    steps: int
    expected_ns: float

    @property
    def excess_ns(self) -> float:
        return self.transfer_ns - self.expected_ns


@dataclass(frozen=True)
class JobSlowdown:
    """What-if figures of a job. A slowdown S is the mean step of a job divided by the mean step if all ranks were alike
    (ideal); 1 is no slowdown.

    `slowdown` is the S of the job, `waste_frac` is 1 - 1/S. `discrepancy_frac` is the measured mean step divided by the
    modelled one, minus 1. `by_operation`, `by_rank` and `by_stage` are S if only this operation, rank or stage stays as
    measured. `worker_share` (M_W) is the share of the loss that is removed if the worst 3 % of the ranks become ideal;
    `stage_share` (M_S) is the same for the last stage.

    `mend_rank_gain_ns` maps a rank to the gain of the mean step if only this rank becomes ideal. It is None if ranks
    meet once in each step; the verdict then measures the gain by each rank's lateness. `even_stages_frac` is the share
    of the mean step saved with equal work in all stages, `even_work_frac` with equal micro-batches in each stage.
    `method` is replay (of every operation) or steps (one synchronisation per step). `stages` are the ranks of each
    pipeline stage. `reason` is why figures are missing.
    """

    slowdown: float | None = None
    waste_frac: float | None = None
    discrepancy_frac: float | None = None
    by_operation: Mapping[str, float] | None = None
    by_rank: Mapping[int, float] | None = None
    by_stage: Mapping[int, float] | None = None
    worker_share: float | None = None
    stage_share: float | None = None
    mend_rank_gain_ns: Mapping[int, float] | None = None
    even_stages_frac: float = 0.0
    even_work_frac: float = 0.0
    stages: tuple[tuple[int, ...], ...] = ()
    method: Literal["replay", "steps"] = "steps"
    reason: str = ""


@dataclass(frozen=True)
class Example:
    """Ranks to show together on the timeline. The first rank is the one that the others wait for. `step` is a typical
    step to which this first rank came last, None if unknown."""

    ranks: tuple[int, ...]
    step: int | None


@dataclass(frozen=True)
class Ended:
    """How a job ended or stands still. `headline` is the beginning of `sentence`. `is_hang`: only imported dumps or
    status files show the hang; nothing was recorded."""

    title: str
    sentence: str
    headline: str
    is_hang: bool


@dataclass(frozen=True)
class Compared:
    """The results of comparing at least two ranks with each other.

    `own_ns` maps a rank to its time outside of collectives in the mean step. `devices` are the device times of the
    ranks read so far, `pending` is the number of ranks whose device is not read yet. `grid` holds the times in the map
    of the page. `grid`, `slow_call`, `slowdown` and `example` are None if unknown. `standstills` is text on when the
    job stood still and went on, "" if it never did."""

    verdict: RankVerdict
    own_ns: Mapping[int, float]
    grid: RankGrid | None
    devices: Mapping[int, DeviceTimes] = field(default_factory=dict)
    pending: int = 0
    slow_call: SlowCall | None = None
    slowdown: JobSlowdown | None = None
    standstills: str = ""
    example: Example | None = None


@dataclass(frozen=True)
class JobFacts:
    """All that the Ranks page shows of a job. `query` is the query of the page's URL; `numbers` are all ranks with a
    folder.

    `ranks` are the ranks read so far, `wanted` is the number of ranks to read, and `is_whole` means that all were
    read. `is_trace` means that the run was imported. `end` is None if the job neither ended badly nor stands still.
    `compared` is None if no two ranks can be compared. `status` is what NCCL's status says of a job without a fault,
    "" without a status."""

    query: Mapping[str, str]
    numbers: tuple[int, ...]
    world_size: int
    is_trace: bool
    end: Ended | None
    ranks: tuple[RankFigures, ...] = ()
    wanted: int = 0
    is_whole: bool = True
    status: str = ""
    collectives: Collectives = field(default_factory=lambda: Collectives(()))
    compared: Compared | None = None
