"""Comparison of ranks: the mean step of each rank, its composition, and how the model is spread over ranks and devices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc

from collector.format.intervals import Ints
from collector.format.parts import find_files
from collector.format.phases import PHASE_NAMES
from collector.format.rank import read_step_rows
from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError, TableMissingError, read_or
from collector.format.schema.manifest import RunState
from collector.format.schema.reading import read_count
from collector.format.standstills import Standstill, read_standstills
from collector.format.steps import measure_between, read_integers, select_steps, train_steps
from profiler_server.analysis.device.device import summarize_device
from profiler_server.analysis.ranks.calls import MOST_CALLS, Calls, read_calls
from profiler_server.analysis.ranks.together import NO_STEPS, NO_TRACK, RankSteps, Track, read_steps, read_track
from profiler_server.analysis.tables import choose
from profiler_server.derive.derived import derived
from profiler_server.derive.many import ManyRanks, Reading, SoFar, Task, Wanted
from profiler_server.derive.stamps import FEW_RANKS
from profiler_server.facts.job import Ddp
from profiler_server.facts.machine import DeviceTimes
from profiler_server.facts.ranks import MOST_RANKS, RankFigures

MOST_CALLS_OF_ALL = 1 << 21
LEAST_CALLS = 512
"""The fewest collectives to read of each rank, even if all ranks together then exceed `MOST_CALLS_OF_ALL`."""
OWN_PHASES = tuple(name for name in PHASE_NAMES if name != "communication")
_COLUMNS = (
    *("kind", "step", "start_ns", "duration_ns", "communication_end_ns", "detailed"),
    *("batch", "loader_start_ns", "gc_ns", "samples"),
    *(f"{p}_ns" for p in PHASE_NAMES),
)


@dataclass(frozen=True)
class RankSummary(RankFigures):
    """One rank with the data for its comparison with other ranks.

    `track` has every training step, for the map. `together` has the steady steps, for the comparison with other
    ranks. `calls` are its collectives, None if not recorded. `unusual` are the steps that the average omits because of a
    detailed window or a standstill. `standstills` are those after which the rank went on. `is_read` is False if its
    manifest is damaged.
    """

    state: RunState
    track: Track = NO_TRACK
    together: RankSteps = NO_STEPS
    calls: Calls | None = None
    unusual: Ints = field(default_factory=lambda: NO_STEPS.step)
    standstills: tuple[Standstill, ...] = ()
    is_read: bool = True


def summarize_ranks(run: Run) -> tuple[RankSummary, ...]:
    """Summarise the first ranks of a run, at most MOST_RANKS. The summary of an unreadable rank has the reason.

    Summaries of very many ranks are kept on disk. While the run is recording, they may be some seconds old.
    """
    wanted = _want(run, lambda ranks: None)
    return _MANY.read(wanted) if len(wanted.ranks) > FEW_RANKS else _summarize(wanted)


def peek_ranks(run: Run, prepare: Callable[[tuple[RankSummary, ...]], None]) -> SoFar[RankSummary]:
    """Return the summaries that are ready: all of them for few ranks, those read so far for very many ranks.

    `prepare` gets all summaries and computes further results for a page. For very many ranks it runs in the background.
    """
    wanted = _want(run, prepare)
    if len(wanted.ranks) > FEW_RANKS:
        return _MANY.peek(wanted)
    return SoFar(_summarize(wanted), len(wanted.ranks), True)


def _want(run: Run, prepare: Callable[[tuple[RankSummary, ...]], None]) -> Wanted[RankSummary]:
    ranks = run.ranks[:MOST_RANKS]
    return Wanted(run, ranks, choose_calls(len(ranks)), prepare)


def summarize_some(run: Run, numbers: Sequence[int]) -> tuple[RankSummary, ...]:
    """Summarise some ranks of a run. A rank without steps, as in some imports, gets figures of its collectives."""
    most_calls = choose_calls(min(len(run.ranks), MOST_RANKS))
    return tuple(_add_calls(run, summarize_rank(run.read_rank(rank), most_calls)) for rank in numbers)


def _add_calls(run: Run, summary: RankSummary) -> RankSummary:
    if summary.calls is not None or not summary.reason or not summary.is_read:
        return summary
    return replace(summary, calls=_read_most_calls(run.read_rank(summary.rank)))


def choose_calls(ranks: int) -> int:
    """Return the number of collectives to read of each of `ranks` ranks: `MOST_CALLS`, or for many ranks a smaller
    power of two.

    With powers of two, the number seldom changes when a rank is added.
    """
    room = MOST_CALLS_OF_ALL // max(ranks, 1)
    return min(MOST_CALLS, max(1 << max(room.bit_length() - 1, 0), LEAST_CALLS))


def _summarize(wanted: Wanted[RankSummary]) -> tuple[RankSummary, ...]:
    return tuple(summarize_rank(wanted.run.read_rank(rank), wanted.number) for rank in wanted.ranks)


def summarize_rank(rank: RankRun, most_calls: int = MOST_CALLS) -> RankSummary:
    """Return the summary of one rank, from its first `most_calls` collectives. A kept result is used if no file has
    changed.
    """
    return _MANY.read_rank(rank, most_calls)


def _is_live(summary: RankSummary) -> bool:
    return summary.state == "recording" and not summary.reason


def _renew(rank: RankRun, summary: RankSummary) -> RankSummary:
    """Return a kept summary with the present state of the rank. The state can change without a change of a file, namely
    when a process dies.
    """
    return read_or(summary, lambda: replace(summary, state=rank.state))


def _read_summary(rank: RankRun, most_calls: int) -> RankSummary:
    try:
        manifest, state = rank.manifest, rank.state
    except RunError as error:
        return _explain(rank, str(error))
    try:
        summary = _read_steps(rank, state, most_calls)
    except RunError as error:
        summary = RankSummary(rank.rank, manifest.host, state, 0, 0.0, 0.0, 0.0, {}, reason=str(error))
    return replace(summary, standstills=read_standstills(rank.rank, manifest.facts))


def _explain(rank: RankRun, reason: str) -> RankSummary:
    return RankSummary(rank.rank, "", "crashed", 0, 0.0, 0.0, 0.0, {}, reason=reason, is_read=False)


def _read_steps(rank: RankRun, state: RunState, most_calls: int) -> RankSummary:
    rows = read_step_rows(rank, _COLUMNS)
    train, selection = train_steps(rows.steps), select_steps(rows.steps)
    if not selection.kept.any():
        raise TableMissingError("It has recorded no training step and no evaluation batch.")
    kept = selection.kept
    phases = {name: float(read_integers(train, f"{name}_ns")[kept].mean()) for name in PHASE_NAMES}
    own = selection.duration_ns - read_integers(train, "communication_ns")
    between = np.zeros_like(selection.step) if rows.infers else measure_between(rows.every)
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
        together=read_steps(train, selection, between),
        calls=read_or(None, read_calls, rank, most_calls),
        noun=rows.noun,
        has_device=bool(rank.manifest.devices),
        starved_frac=_read_starved(rank),
        unusual=selection.step[(selection.detailed | selection.stood) & ~selection.kept],
    )


def read_device(rank: RankRun) -> DeviceTimes | None:
    """Return the device times of a rank's detailed windows; None if they are missing or unreadable.

    Large traces take seconds the first time.
    """
    return read_or(None, summarize_device, rank)  # the Operators page reports the error


@derived()
def _read_most_calls(rank: RankRun) -> Calls | None:
    return read_or(None, read_calls, rank, MOST_CALLS)


def _read_starved(rank: RankRun) -> float:
    try:
        if not find_files(rank.folder, "resources"):
            return 0.0
        rows = choose(rank.table("resources", ("source", "metric", "value")), "source", "process")
        mean = pc.mean(choose(rows, "metric", "run_queue_frac")["value"]).as_py()
    except RunError:
        return 0.0
    return float(mean) if mean is not None and math.isfinite(mean) else 0.0


def read_task(task: Task) -> list[RankSummary]:
    """Return the summaries of a task's ranks. A process that reads ranks for another process calls this."""
    return _MANY.read_task(task)


def is_sound(found: RankSummary) -> bool:
    """Return whether a summary read from disk is valid: its arrays have consistent lengths."""
    together, track, calls = found.together, found.track, found.calls
    phases, steps, stretches = len(PHASE_NAMES), len(together.step), len(track.stretch)
    shapes: list[tuple[Any, tuple[int, ...]]] = [
        (together.parts_ns, (phases, steps)),
        (together.collecting_ns, (steps,)),
        (together.meeting_ns, (steps,)),
        (together.between_ns, (steps,)),
        (track.parts_ns, (phases, stretches)),
        (track.count, (stretches,)),
        (track.samples, (stretches,)),
    ]
    if calls is not None:
        own = (getattr(calls, entry.name) for entry in fields(calls) if entry.name != "kinds")
        shapes += [(values, calls.kind.shape[:1]) for values in own]
    known = calls is None or not len(calls.kind) or 0 <= calls.kind.min() <= calls.kind.max() < len(calls.kinds)
    named = not found.steps or set(found.phases_ns) == set(PHASE_NAMES)
    return known and named and track.size > 0 and all(values.shape == shape for values, shape in shapes)


def make_many(
    compute: Callable[[RankRun, int], RankSummary] = _read_summary,
    read: Callable[[Task], list[RankSummary]] = read_task,
) -> ManyRanks[RankSummary]:
    return ManyRanks(Reading(compute, _explain, _is_live, _renew, is_sound), read)


_MANY = make_many()
_MOST_TEXT = 100


def read_ddp(facts: Mapping[str, Any]) -> Ddp | None:
    """Return the recorded facts on DistributedDataParallel; None if missing or invalid."""
    noted = facts.get("ddp")
    if not isinstance(noted, Mapping):
        return None
    buckets = noted.get("bucket_bytes")
    counts = {name: read_count(noted.get(name)) for name in ("parameter_bytes", "backwards", "synced_backwards")}
    return Ddp(
        backend=str(noted.get("backend", ""))[:_MOST_TEXT],
        device_type=str(noted.get("device_type", ""))[:_MOST_TEXT],
        parameter_bytes=counts["parameter_bytes"] or 0,
        unused_bytes=read_count(noted.get("unused_bytes")),
        bucket_bytes=tuple(size for entry in buckets if (size := read_count(entry)) is not None)
        if isinstance(buckets, list)
        else (),
        finds_unused=bool(noted.get("find_unused_parameters")),
        shares_buckets=bool(noted.get("gradient_as_bucket_view")),
        backwards=counts["backwards"] or 0,
        synced_backwards=counts["synced_backwards"] or 0,
    )


def count_parallel_devices(facts: Mapping[str, Any]) -> int:
    """Return the number of devices of nn.DataParallel, 0 without it."""
    return read_count(facts.get("data_parallel")) or 0
