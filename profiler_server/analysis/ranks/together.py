"""The common steps of several ranks, and all steps of a rank summed over stretches of steps. With stretches, long runs
take no more memory than short runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collector.format.intervals import Floats, Ints, Mask
from collector.format.phases import COMMUNICATION, PHASE_NAMES
from collector.format.steps import StepSelection, read_integers
from profiler_server.diagnosis.limits.facts import MOST_FRAC

MOST_STEPS = 512
"""The largest number of compared steps. A longer run uses a half, a quarter and so on of its steps, on every rank the
same."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""A multiplier from the golden ratio, which spreads step numbers evenly for any distance between steps."""
MOST_CELLS = 1 << 20
"""The largest number of ranks times steps. With more ranks, fewer steps are compared."""

Small = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class RankSteps:
    """The steady steps of one rank, or in a long run a selection of them. Objects are compared by identity.

    `parts_ns` is (phases, steps), in the order of PHASE_NAMES. `collecting_ns` is garbage collection within the
    steps. `between_ns` is work before each step and after the step before, such as an evaluation. `meeting_ns` is
    the time from the end of the last collective of the previous step to the end of the last collective of this step.
    It is NaN if either end is unknown, or if work between the two steps is unknown.
    """

    step: Ints
    parts_ns: Small
    collecting_ns: Small
    between_ns: Small
    meeting_ns: Small


_NONE = np.empty(0, np.float32)
NO_STEPS = RankSteps(np.empty(0, np.int64), np.empty((len(PHASE_NAMES), 0), np.float32), _NONE, _NONE, _NONE)


@dataclass(frozen=True, eq=False)
class StepsTogether:
    """The steps that all of `ranks` have. Ranks that ended early are left out. `parts_ns` is (phases, ranks, steps),
    the other times are (ranks, steps), as in `RankSteps`.

    Only `between_ns` differs: it is a rank's time between its steps, minus the shortest such time of all ranks,
    because time that every rank spends between steps makes no rank wait.
    """

    ranks: tuple[int, ...]
    step: Ints
    parts_ns: Floats
    collecting_ns: Floats
    between_ns: Floats
    meeting_ns: Floats

    @property
    def held_ns(self) -> Floats:
        held: Floats = self.parts_ns[COMMUNICATION]
        return held

    @property
    def own_ns(self) -> Floats:
        return self.step_ns - self.held_ns

    @property
    def step_ns(self) -> Floats:
        whole: Floats = self.parts_ns.sum(axis=0) + self.between_ns
        return whole

    def drop(self, steps: Sequence[int]) -> StepsTogether:
        kept = ~np.isin(self.step, np.array(steps, np.int64))
        parts = (self.parts_ns, self.collecting_ns, self.between_ns, self.meeting_ns)
        return StepsTogether(self.ranks, self.step[kept], *(part[..., kept] for part in parts))

    def mark(self, rank: int) -> Mask:
        """Return a mask of all steps of one rank, as (ranks, steps)."""
        return np.broadcast_to(np.array(self.ranks)[:, None] == rank, self.own_ns.shape)

    def mark_longest(self) -> Mask:
        """Return a mask of the rank with the most work in each step, as (ranks, steps)."""
        chosen: Mask = np.arange(len(self.ranks))[:, None] == np.argmax(self.own_ns, axis=0)[None, :]
        return chosen


def read_steps(train: pa.Table, selection: StepSelection, between_ns: Ints) -> RankSteps:
    """Return the steady steps of a table of training steps. `between_ns` is the work before each step."""
    chosen = np.flatnonzero(selection.kept)
    every = 1 << max(-(-len(chosen) // MOST_STEPS) - 1, 0).bit_length()
    chosen = chosen[choose_steps(selection.step[chosen], every)]
    parts = np.stack([read_integers(train, f"{name}_ns")[chosen] for name in PHASE_NAMES])
    collecting = read_integers(train, "gc_ns")[chosen]
    # Behind a detailed window and a standstill lies what these cost.
    is_usual = ~np.concatenate([[False], (selection.detailed | selection.stood)[:-1]])[: len(selection.step)]
    between = np.where(is_usual, between_ns, 0)[chosen]
    meeting = _measure_meetings(train, selection, between_ns)[chosen]
    found = (part.astype(np.float32) for part in (parts, collecting, between, meeting))
    return RankSteps(selection.step[chosen], *found)


def choose_steps(step: Ints, every: int) -> Mask:
    """Return a mask of about one in `every` steps, chosen by a hash of the step's number.

    A regular choice such as every eighth step could match a rhythm of the training. For work that a rank does every 200
    steps, it might take all of these steps or none.
    """
    if every <= 1:
        return np.ones(len(step), np.bool_)
    return step.astype(np.uint64) * _GOLDEN < np.uint64((1 << 64) // every)


def _measure_meetings(train: pa.Table, selection: StepSelection, between_ns: Ints) -> Floats:
    start, length = read_integers(train, "start_ns"), read_integers(train, "duration_ns")
    end = read_integers(train, "communication_end_ns", -1)
    found = np.full(len(start), np.nan)
    follows = (start[1:] == start[:-1] + length[:-1] + between_ns[1:]) & (end[1:] >= 0) & (end[:-1] >= 0)
    follows &= selection.kept[1:] & selection.kept[:-1]
    found[1:][follows] = (length[:-1] - end[:-1] + between_ns[1:] + end[1:])[follows]
    return found


def find_whole(counts: Ints) -> Mask:
    """Return a mask of the ranks that did not end early, judged by `counts`, the number of steps or calls of each rank."""
    there = counts > 0
    if not there.any():
        return there
    whole: Mask = there & (counts >= MOST_FRAC * np.median(counts[there]))
    return whole if whole.sum() > 1 else there


def _count_usual(steps: Sequence[Ints]) -> Ints:
    """Return for each rank the number of its steps that at least half of the ranks have."""
    if not steps:
        return np.empty(0, np.int64)
    numbers, counts = np.unique(np.concatenate(steps), return_counts=True)
    usual = numbers[counts >= MOST_FRAC * len(steps)]
    return np.array([np.isin(own, usual).sum() for own in steps], np.int64)


def put_together(steps: Mapping[int, RankSteps]) -> StepsTogether:
    """Return the common steps of the ranks. Ranks that ended early, or that number their steps differently, are left
    out.
    """
    whole = find_whole(_count_usual([rank.step for rank in steps.values()]))
    kept = tuple(number for number, is_whole in zip(steps, whole, strict=True) if is_whole)
    chosen = [steps[number] for number in kept]
    common = chosen[0].step if chosen else np.empty(0, np.int64)
    for rank in chosen[1:]:
        if len(rank.step) != len(common) or (rank.step != common).any():
            common = np.intersect1d(common, rank.step)
    common = common[:: max(-(-len(common) * len(chosen) // MOST_CELLS), 1)]
    places = [np.searchsorted(rank.step, common) for rank in chosen]
    parts = np.zeros((len(PHASE_NAMES), len(chosen), len(common)))
    collecting, between, meeting = np.zeros((3, len(chosen), len(common)))
    for row, (rank, place) in enumerate(zip(chosen, places, strict=True)):
        parts[:, row], collecting[row] = rank.parts_ns[:, place], rank.collecting_ns[place]
        between[row], meeting[row] = rank.between_ns[place], rank.meeting_ns[place]
    return StepsTogether(kept, common, parts, collecting, between - between.min(axis=0, initial=np.inf), meeting)


MOST_STRETCHES = 160
"""Stretches of one rank: as many as a map has columns, because tracks of thousands of ranks are kept."""


@dataclass(frozen=True, eq=False)
class Track:
    """Steps of one rank in stretches of `size` steps, a power of two. Stretch i has the steps i·size to (i + 1)·size -
    1.

    `stretch` has the numbers of the stretches with a step, and `count` the number of steps in each. `parts_ns` (phases,
    stretches) and `samples` are sums.
    """

    size: int
    stretch: Ints
    count: Ints
    parts_ns: Floats
    samples: Ints


NO_TRACK = Track(1, *(np.empty(0, np.int64),) * 2, np.empty((len(PHASE_NAMES), 0)), np.empty(0, np.int64))


def read_track(train: pa.Table) -> Track:
    """Sum a table of training steps by stretches."""
    step = read_integers(train, "step")
    if not len(step):
        return NO_TRACK
    size = find_size(int(step.min()), int(step.max()), MOST_STRETCHES)
    stretch, place = np.unique(step // size, return_inverse=True)
    parts = [np.bincount(place, read_integers(train, f"{name}_ns"), len(stretch)) for name in PHASE_NAMES]
    samples = np.bincount(place, read_integers(train, "samples", absent=0), len(stretch)).astype(np.int64)
    return Track(size, stretch, np.bincount(place, minlength=len(stretch)), np.stack(parts), samples)


def find_size(first: int, last: int, most: int) -> int:
    """Return the smallest power of two that divides the steps from `first` to `last` into at most `most` stretches of
    this size.
    """
    size = 1
    while last // size - first // size + 1 > most:
        size *= 2
    return size
