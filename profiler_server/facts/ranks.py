"""The ranks of a job side by side, as pages and sentences read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from profiler_server.facts.job import RankVerdict
from profiler_server.facts.machine import DeviceTimes

MOST_RANKS = 4_096
"""Ranks that are set side by side, from the first."""


@dataclass(frozen=True)
class RankFigures:
    """One rank. Means are over the steps of its average, batches (`noun`) where it only infers; `own_ns` is the step
    without being held in collectives.

    `noise_ns` is the standard error of `own_ns`. `starved_frac` is the share of its time that the training process was
    ready to run and had no processor. `reason` says why a rank has no figures, which are 0 then.
    """

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
    """Return what the steps of the ranks are called: batches where all of them only infer."""
    nouns = {rank.noun for rank in ranks if rank.steps}
    return "batch" if nouns == {"batch"} else "step"


@dataclass(frozen=True)
class RankGrid:
    """A figure by rank (row) and stretch of `size` steps from `first` on (column); not a number where it is not known."""

    ranks: tuple[int, ...]
    first: npt.NDArray[np.int64]
    size: int
    values: npt.NDArray[np.float64]


@dataclass(frozen=True)
class CollectiveRow:
    """The calls of one name by one rank. `wait_ns` is None where no other rank's calls match; `late` counts the calls
    for which this rank came last.

    Bandwidths are over the transfers, None where the sizes are not known. Where no other rank's calls match they are
    over the rank's own time, which holds its waits, and so are the least that they can be.
    """

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
    """The collectives of all ranks. `clock_residual_ns` is how well aligned clocks agree; `in_windows` says that all were
    seen in detailed windows, and none was timed outside of them."""

    rows: tuple[CollectiveRow, ...]
    clock: Clock = "one"
    clock_residual_ns: float = 0.0
    in_windows: bool = False


@dataclass(frozen=True)
class SlowCall:
    """The call that takes most too long. It is the `number`-th of that name and group in a step, from 1, of `count`.

    `transfer_ns` is its median over the steps, and `expected_ns` what it takes at most at the speed of the others.
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
    """What-if figures of a job. Each S is a ratio of mean step times to those of the ideal job, 1 for no slowdown.

    `slowdown` is S, `waste_frac` 1 - 1/S; `discrepancy_frac` is the measured mean step over the modelled one, less 1.
    `by_operation`, `by_rank` and `by_stage` are S with only that part as it was measured. `worker_share` (M_W) and
    `stage_share` (M_S) say which part of the loss would be gone with the worst 3 % of the ranks, or the last stage,
    mended. `mend_rank_gain_ns` is what the mean step would gain if that rank alone were as the ideal one, None where ranks meet
    once in each step: the verdict measures it there, by how late each of them comes.
    `even_stages_frac` is the share of the mean step that goes where all stages have the same work, and `even_work_frac`
    where all micro-batches of a stage have. `method` is
    replay (of every operation) or steps (one synchronisation per step). `stages` are the ranks of each stage of a
    pipeline. `reason` says why the figures are absent.
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
    """Ranks, the one that is waited for first; `step` is None where no step is known in which all of them met."""

    ranks: tuple[int, ...]
    step: int | None


@dataclass(frozen=True)
class Ended:
    """How a job ended, or stands still; `is_hang` says that its dumps or a status tell that, and nothing was recorded."""

    title: str
    sentence: str
    is_hang: bool


@dataclass(frozen=True)
class Compared:
    """What two ranks or more tell together. `own_ns` is what each works in the mean step; `devices` are those that were
    read so far, and `pending` counts the others. `standstills` says when the job stood still and got on."""

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
    """All that the Ranks page shows. `query` is that of its address, `numbers` are all ranks that have a folder.

    `ranks` are those of `wanted` that were read so far, `is_whole` says that these are all; `compared` is None where no two
    can be. `status` is what NCCL's status tells of a job without a fault.
    """

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
