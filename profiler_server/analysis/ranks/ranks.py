"""Ranks side by side: the mean step of each, what it is made of, which rank is behind and by which phase.

Results of one rank are cached until its files change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from collector.format.evaluation import read_step_rows
from collector.format.intervals import Floats, Ints
from collector.format.phases import PHASE_NAMES
from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError, TableMissingError
from collector.format.schema.manifest import RunState
from collector.format.steps import read_integers, select_steps, train_steps
from profiler_server.analysis.device.device import summarize_device
from profiler_server.analysis.ranks.calls import Calls, read_calls
from profiler_server.analysis.ranks.together import NO_STEPS, RankSteps, read_steps
from profiler_server.analysis.results import DeviceTimes
from profiler_server.store.cache.memory import MemoryCache

MOST_RANKS = 1024
"""Ranks that are set side by side, from the first."""
OWN_PHASES = tuple(name for name in PHASE_NAMES if name != "communication")
_COLUMNS = (
    *("kind", "step", "duration_ns", "detailed", "batch", "loader_start_ns", "gc_ns"),
    *(f"{p}_ns" for p in PHASE_NAMES),
)


@dataclass(frozen=True)
class RankSummary:
    """One rank. Means are over the steps of its average, batches (`noun`) where it only infers; `own_ns` is the step
    without being held in collectives.

    `noise_ns` is the standard error of `own_ns`. `number` and `own` are every training step's, for the picture;
    `together` those of its average that are set beside the steps of other ranks.
    `reason` says why a rank has no figures, which are 0 then.
    """

    rank: int
    host: str
    state: RunState
    steps: int
    step_ns: float
    own_ns: float
    noise_ns: float
    phases_ns: Mapping[str, float]
    number: Ints
    own: Ints
    together: RankSteps = NO_STEPS
    calls: Calls | None = None
    reason: str = ""
    noun: str = "step"


_SUMMARIES: MemoryCache[RankSummary] = MemoryCache(2 * MOST_RANKS)
_DEVICES: MemoryCache[DeviceTimes | None] = MemoryCache(2 * MOST_RANKS)


def summarize_ranks(run: Run) -> tuple[RankSummary, ...]:
    """Summarise the first ranks of a run, at most MOST_RANKS. A rank that cannot be read says why."""
    return tuple(summarize_rank(run.read_rank(rank)) for rank in run.ranks[:MOST_RANKS])


def summarize_rank(rank: RankRun) -> RankSummary:
    """Summarise one rank, from what is kept if its files are the same."""
    summary = _SUMMARIES.find_or_compute_rank(rank, lambda: _read_summary(rank))
    if summary.state != "recording" or summary.reason:
        return summary
    return replace(summary, state=rank.state)  # a process that dies changes no file


def _read_summary(rank: RankRun) -> RankSummary:
    empty = np.empty(0, np.int64)
    try:
        manifest, state = rank.manifest, rank.state
    except RunError as error:
        return RankSummary(rank.rank, "", "crashed", 0, 0.0, 0.0, 0.0, {}, empty, empty, reason=str(error))
    try:
        return _read_steps(rank, manifest.host, state)
    except RunError as error:
        return RankSummary(rank.rank, manifest.host, state, 0, 0.0, 0.0, 0.0, {}, empty, empty, reason=str(error))


def _read_steps(rank: RankRun, host: str, state: RunState) -> RankSummary:
    rows = read_step_rows(rank, _COLUMNS)
    train, selection = train_steps(rows.steps), select_steps(rows.steps)
    if not selection.kept.any():
        raise TableMissingError("It has recorded no training step and no evaluation batch.")
    kept = selection.kept
    phases = {name: float(read_integers(train, f"{name}_ns")[kept].mean()) for name in PHASE_NAMES}
    own = selection.duration_ns - read_integers(train, "communication_ns")
    return RankSummary(
        rank=rank.rank,
        host=host,
        state=state,
        steps=len(selection.step),
        step_ns=float(selection.duration_ns[kept].mean()),
        own_ns=float(own[kept].mean()),
        noise_ns=float(own[kept].std() / np.sqrt(kept.sum())),
        phases_ns=phases,
        number=selection.step,
        own=own,
        together=read_steps(train, selection),
        calls=_read_calls(rank),
        noun=rows.noun,
    )


def read_device(rank: RankRun) -> DeviceTimes | None:
    """Account the device time of a rank's detailed windows, None without any. Large traces take seconds the first time."""
    return _DEVICES.find_or_compute_rank(rank, lambda: _read_device(rank))


def _read_device(rank: RankRun) -> DeviceTimes | None:
    try:
        return summarize_device(rank)
    except RunError:
        return None  # the Operators page says what is wrong with it


def _read_calls(rank: RankRun) -> Calls | None:
    try:
        return read_calls(rank)
    except RunError:
        return None


def find_noun(ranks: Sequence[RankSummary]) -> str:
    """Return what the steps of the ranks are called: batches where all of them only infer."""
    nouns = {rank.noun for rank in ranks if rank.steps}
    return "batch" if nouns == {"batch"} else "step"


def average_steps(ranks: Sequence[RankSummary], columns: int = 240) -> tuple[Ints, Floats]:
    """Return the first step of each of at most `columns` equal stretches, and the own time of each rank (row) in each.

    A stretch in which a rank has no step is not a number.
    """
    known = [rank for rank in ranks if rank.steps]
    if not known:
        return np.empty(0, np.int64), np.empty((0, 0))
    first = min(int(rank.number[0]) for rank in known)
    last = max(int(rank.number[-1]) for rank in known)
    size = max(1, -(-(last - first + 1) // columns))
    count = (last - first) // size + 1
    rows = np.full((len(known), count), np.nan)
    for row, rank in zip(rows, known, strict=True):
        at = (rank.number - first) // size
        present = np.bincount(at, minlength=count)
        sums = np.bincount(at, weights=rank.own, minlength=count)
        row[present > 0] = sums[present > 0] / present[present > 0]
    return np.arange(count, dtype=np.int64) * size + first, rows
