"""Ranks side by side: the mean step of each, what it is made of, which rank is behind and by which phase.

Results of one rank are cached until its files change.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc

from collector.format.evaluation import read_step_rows
from collector.format.intervals import Ints
from collector.format.parts import find_files
from collector.format.phases import PHASE_NAMES
from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError, TableMissingError
from collector.format.schema.manifest import RunState
from collector.format.steps import read_integers, select_steps, train_steps
from profiler_server.analysis.device.device import summarize_device
from profiler_server.analysis.ranks.calls import MOST_CALLS, Calls, read_calls
from profiler_server.analysis.ranks.together import NO_STEPS, RankSteps, read_steps
from profiler_server.analysis.ranks.tracks import NO_TRACK, Track, read_track
from profiler_server.analysis.results import DeviceTimes
from profiler_server.store.cache.memory import MemoryCache

MOST_RANKS = 1024
"""Ranks that are set side by side, from the first."""
FEW_RANKS = 128
LOOK_AGAIN_S = 5.0
"""The files of more than FEW_RANKS ranks are looked at again after so long."""
MOST_CALLS_OF_ALL = 2_000_000
LEAST_CALLS = 500
"""Collectives of all ranks, and of each at least, that are looked at."""
OWN_PHASES = tuple(name for name in PHASE_NAMES if name != "communication")
_COLUMNS = (
    *("kind", "step", "duration_ns", "detailed", "batch", "loader_start_ns", "gc_ns", "samples", "probed"),
    *(f"{p}_ns" for p in PHASE_NAMES),
)


@dataclass(frozen=True)
class RankSummary:
    """One rank. Means are over the steps of its average, batches (`noun`) where it only infers; `own_ns` is the step
    without being held in collectives.

    `noise_ns` is the standard error of `own_ns`. `track` holds every training step, for the picture; `together` those of
    its average that are set beside the steps of other ranks.
    `moment` and `standing` are what its manifest tells of where it was at last. `detailed` are the steps in detailed windows that its average leaves out. `starved_frac` is the share of its time that the training process was ready to run and had no processor.
    `reason` says why a rank has no figures, which are 0 then; `is_read` is False for one whose manifest is damaged.
    """

    rank: int
    host: str
    state: RunState
    steps: int
    step_ns: float
    own_ns: float
    noise_ns: float
    phases_ns: Mapping[str, float]
    track: Track = NO_TRACK
    together: RankSteps = NO_STEPS
    calls: Calls | None = None
    reason: str = ""
    noun: str = "step"
    has_device: bool = False
    starved_frac: float = 0.0
    moment: Any = None
    standing: Any = None
    detailed: Ints = field(default_factory=lambda: NO_STEPS.step)
    is_read: bool = True


_SUMMARIES: MemoryCache[RankSummary] = MemoryCache(2 * MOST_RANKS)
_CALLS: MemoryCache[Calls | None] = MemoryCache(FEW_RANKS)
_DEVICES: MemoryCache[DeviceTimes | None] = MemoryCache(2 * MOST_RANKS)
_LOOKED: dict[Hashable, tuple[tuple[int, ...], float, tuple[RankSummary, ...]]] = {}


def summarize_ranks(run: Run) -> tuple[RankSummary, ...]:
    """Summarise the first ranks of a run, at most MOST_RANKS. A rank that cannot be read says why.

    Looking whether the files of very many ranks are the same takes long in itself: it is not done for each request.
    """
    ranks = run.ranks[:MOST_RANKS]
    if len(ranks) <= FEW_RANKS:
        return _summarize(run, ranks, len(ranks))
    now = time.monotonic()
    known = _LOOKED.get(run.key)
    if known is None or known[0] != ranks or now > known[1]:
        known = ranks, now + LOOK_AGAIN_S, _summarize(run, ranks, len(ranks))
        _LOOKED.clear()
        _LOOKED[run.key] = ranks, time.monotonic() + LOOK_AGAIN_S, known[2]
    return known[2]


def summarize_some(run: Run, numbers: Sequence[int]) -> tuple[RankSummary, ...]:
    """Summarise some ranks of a run, with the collectives of those that have no steps: imported traces need none."""
    return tuple(_add_calls(run, rank) for rank in _summarize(run, tuple(numbers), min(len(run.ranks), MOST_RANKS)))


def _add_calls(run: Run, summary: RankSummary) -> RankSummary:
    if summary.calls is not None or not summary.reason or not summary.is_read:
        return summary
    rank = run.read_rank(summary.rank)
    return replace(summary, calls=_CALLS.find_or_compute_rank(rank, lambda: _read_calls(rank, MOST_CALLS)))


def _summarize(run: Run, ranks: tuple[int, ...], of_all: int) -> tuple[RankSummary, ...]:
    most_calls = min(MOST_CALLS, max(MOST_CALLS_OF_ALL // max(of_all, 1), LEAST_CALLS))
    return tuple(summarize_rank(run.read_rank(rank), most_calls) for rank in ranks)


def summarize_rank(rank: RankRun, most_calls: int = MOST_CALLS) -> RankSummary:
    """Summarise one rank, from what is kept if its files are the same."""
    summary = _SUMMARIES.find_or_compute_rank(rank, lambda: _read_summary(rank, most_calls))
    if summary.state != "recording" or summary.reason:
        return summary
    return replace(summary, state=rank.state)  # a process that dies changes no file


def _read_summary(rank: RankRun, most_calls: int) -> RankSummary:
    try:
        manifest, state = rank.manifest, rank.state
    except RunError as error:
        return RankSummary(rank.rank, "", "crashed", 0, 0.0, 0.0, 0.0, {}, reason=str(error), is_read=False)
    try:
        summary = _read_steps(rank, state, most_calls)
    except RunError as error:
        summary = RankSummary(rank.rank, manifest.host, state, 0, 0.0, 0.0, 0.0, {}, reason=str(error))
    return replace(summary, moment=manifest.facts.get("moment"), standing=manifest.facts.get("standing"))


def _read_steps(rank: RankRun, state: RunState, most_calls: int) -> RankSummary:
    rows = read_step_rows(rank, _COLUMNS)
    train, selection = train_steps(rows.steps), select_steps(rows.steps)
    if not selection.kept.any():
        raise TableMissingError("It has recorded no training step and no evaluation batch.")
    kept = selection.kept
    phases = {name: float(read_integers(train, f"{name}_ns")[kept].mean()) for name in PHASE_NAMES}
    own = selection.duration_ns - read_integers(train, "communication_ns")
    return RankSummary(
        rank=rank.rank,
        host=rank.manifest.host,
        state=state,
        steps=len(selection.step),
        step_ns=float(selection.duration_ns[kept].mean()),
        own_ns=float(own[kept].mean()),
        noise_ns=float(own[kept].std() / np.sqrt(kept.sum())),
        phases_ns=phases,
        track=read_track(train),
        together=read_steps(train, selection),
        calls=_read_calls(rank, most_calls),
        noun=rows.noun,
        has_device=bool(rank.manifest.devices),
        starved_frac=_read_starved(rank),
        detailed=selection.step[selection.detailed & ~selection.kept],
    )


def read_device(rank: RankRun) -> DeviceTimes | None:
    """Account the device time of a rank's detailed windows, None without any. Large traces take seconds the first time."""
    return _DEVICES.find_or_compute_rank(rank, lambda: _read_device(rank))


def _read_device(rank: RankRun) -> DeviceTimes | None:
    try:
        return summarize_device(rank)
    except RunError:
        return None  # the Operators page says what is wrong with it


def _read_calls(rank: RankRun, most: int) -> Calls | None:
    try:
        return read_calls(rank, most)
    except RunError:
        return None


def _read_starved(rank: RankRun) -> float:
    try:
        if not find_files(rank.folder, "resources"):
            return 0.0
        where = (pc.field("source") == "process") & (pc.field("metric") == "run_queue_frac")
        mean = pc.mean(rank.table("resources", ("value",), where)["value"]).as_py()
    except RunError:
        return 0.0
    return float(mean) if mean is not None and math.isfinite(mean) else 0.0


def find_noun(ranks: Sequence[RankSummary]) -> str:
    """Return what the steps of the ranks are called: batches where all of them only infer."""
    nouns = {rank.noun for rank in ranks if rank.steps}
    return "batch" if nouns == {"batch"} else "step"
