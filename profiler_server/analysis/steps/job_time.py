"""The useful time of a job that was started again: which part of its wall time were steps that were kept.

Wall time runs from the start of the first attempt to the end of the last. Steps are numbered across attempts by the
updates that the optimizer had counted before the first step of an attempt. An attempt that begins after update `b`
repeats all later steps of earlier attempts. Where this number is unknown, the useful time lies between two bounds: the
attempt began anew, or it repeated nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from collector.format.attempts import Attempt
from collector.format.intervals import unite
from collector.format.parts import find_files
from collector.format.rank import RankRun
from collector.format.run import Run
from collector.format.schema.errors import RunError
from collector.format.schema.reading import read_count
from collector.format.steps import read_integers
from profiler_server.analysis.recorded_facts import read_start
from profiler_server.analysis.steps.interruptions import read_saves
from profiler_server.analysis.tables import is_text
from profiler_server.derive.derived import derived
from profiler_server.facts.useful import JobTime

_MOST_RANKS = 8
_ALL = -1
_COLUMNS = ("kind", "start_ns", "duration_ns", "optimizer_steps", "skipped_updates")


@dataclass(frozen=True)
class _Spent:
    """The time of an attempt by what it was spent on, in ns since the first training step, which began at `first_ns`.
    `kept_ns` and `kept` are of its first steps, `steps_ns` and `steps` of all. `updates` were counted by each of the
    optimizers; None if one of them made several in a step."""

    first_ns: int
    last_ns: int
    steps: int
    steps_ns: int
    kept: int
    kept_ns: int
    saving_ns: int
    evaluation_ns: int
    updates: int | None


@dataclass(frozen=True)
class _Part:
    """One attempt, whose process began and ended at these Unix times. `rank` has its steps; None without a step."""

    number: int
    start_ns: int
    end_ns: int
    rank: RankRun | None
    epoch_ns: int
    before: int | None
    has_saved: bool


def measure_job_time(attempts: Sequence[Attempt]) -> JobTime | None:
    """Return the useful time of a job. None with fewer than two attempts, without a training step, or if a table that
    it needs is damaged."""
    try:
        parts = [part for attempt in attempts if (part := _read_part(Run(attempt.path))) is not None]
        if len(parts) < 2 or all(part.rank is None for part in parts):
            return None
        return _measure(parts)
    except RunError:
        return None


def _measure(parts: Sequence[_Part]) -> JobTime:
    trained = [part for part in parts if part.rank is not None]
    begins = _find_begins(trained)
    spent = dict(zip((part.number for part in trained), _split(trained, begins, is_least=False), strict=True))
    least = _split(trained, begins, is_least=True)
    ends = list(accumulate((part.end_ns for part in parts), max))
    starts = [max(part.start_ns, end) for part, end in zip(parts, [parts[0].start_ns, *ends], strict=False)]
    total_ns = ends[-1] - starts[0]
    between_ns = sum(max(start - end, 0) for start, end in zip(starts[1:], ends, strict=False))
    start_up_ns = 0
    for part, start, end in zip(parts, starts, ends, strict=True):
        first = spent[part.number].first_ns + part.epoch_ns if part.number in spent else end
        start_up_ns += max(min(first, end) - start, 0)
    known = [*spent.values()]
    steps_ns, saving_ns, evaluation_ns = (
        sum(getattr(one, name) for one in known) for name in ("steps_ns", "saving_ns", "evaluation_ns")
    )
    unknown = tuple(part.number for part, begin in zip(trained[1:], begins[1:], strict=True) if begin is None)
    return JobTime(
        total_ns=total_ns,
        kept_low_ns=sum(one.kept_ns for one in least),
        kept_high_ns=sum(one.kept_ns for one in known),
        steps_ns=steps_ns,
        repeated_steps=None if unknown else sum(one.steps - one.kept for one in known),
        start_up_ns=start_up_ns,
        between_ns=between_ns,
        saving_ns=saving_ns,
        evaluation_ns=evaluation_ns,
        other_ns=max(total_ns - start_up_ns - between_ns - steps_ns - saving_ns - evaluation_ns, 0),
        unknown=unknown,
    )


def _find_begins(trained: Sequence[_Part]) -> list[int | None]:
    """Return for each attempt how many updates of the job its first step follows; None if that is unknown.

    An optimizer that is new although an attempt before had saved shows nothing: the script may have loaded the model
    alone. Nor does a count that the steps of the attempts before cannot have reached.
    """
    begins: list[int | None] = []
    reached: int | None = 0
    for place, part in enumerate(trained):
        assert part.rank is not None
        begin, updates = part.before, _spend(part.rank, _ALL).updates
        if place and begin == 0:
            begin = None if any(earlier.has_saved for earlier in trained[:place]) else 0
        elif place and begin is not None and (reached is None or begin > reached + 1):
            begin = None
        begins.append(begin)
        ends = None if begin is None or updates is None else begin + updates
        reached = None if reached is None or ends is None else max(reached, ends)
    return begins


def _split(trained: Sequence[_Part], begins: Sequence[int | None], is_least: bool) -> list[_Spent]:
    """Return the time of each attempt, with the least or the most of its steps that may have been kept."""
    found: list[_Spent] = []
    limit = math.inf
    for part, begin in zip(reversed(trained), reversed(begins), strict=True):
        assert part.rank is not None
        if math.isinf(limit):
            until: int = _ALL
        elif begin is None:
            until = 0 if is_least else int(limit)
        else:
            until = max(int(limit) - begin, 0)
        found.append(_spend(part.rank, until))
        limit = min(limit, begin if begin is not None else 0 if is_least else math.inf)
    return found[::-1]


def _read_part(run: Run) -> _Part | None:
    ranks = [run.read_rank(number) for number in run.ranks[:_MOST_RANKS]]
    if not ranks:
        return None
    epoch_ns = run.manifest.epoch_unix_ns
    with_steps = next((rank for rank in ranks if find_files(rank.folder, "steps") and rank.count_steps()), None)
    start_ns = min(_find_start(rank) for rank in ranks)
    end_ns = max(_find_end(rank) for rank in ranks)
    if with_steps is not None:
        end_ns = max(end_ns, epoch_ns + _spend(with_steps, _ALL).last_ns)
    before = read_count(with_steps.manifest.facts.get("updates_before")) if with_steps is not None else None
    has_saved = any(read_saves(rank).length_ns for rank in ranks)
    return _Part(run.manifest.attempt, start_ns, max(start_ns, end_ns), with_steps, epoch_ns, before, has_saved)


def _find_start(rank: RankRun) -> int:
    start = read_start(rank.manifest.facts)
    began = rank.manifest.started_unix_ns
    return start.since_unix_ns if start is not None and start.since_unix_ns <= began else began


def _find_end(rank: RankRun) -> int:
    death = rank.manifest.facts.get("process_end")
    died = read_count(death.get("at_unix_ns")) if isinstance(death, dict) else None
    return died or rank.manifest.ended_unix_ns or rank.manifest.heartbeat_unix_ns


@derived()
def _spend(rank: RankRun, until: int) -> _Spent:
    """Return what the time of a rank was spent on, with the steps up to update `until` as kept. The rank has a step.
    Raises as `RankRun.table`."""
    rows = rank.table("steps", _COLUMNS)
    starts, took, made, skipped = (read_integers(rows, name) for name in _COLUMNS[1:])
    ends = starts + took
    trains, evaluates = (is_text(rows, "kind", kind).to_numpy() for kind in ("train", "eval"))
    first_ns, last_ns = int(starts[trains][0]), int(ends.max())
    updates = np.cumsum((skipped[trains] == 0) | (skipped[trains] < made[trains]))
    kept = np.ones(len(updates), np.bool_) if until == _ALL else updates <= until
    saves = read_saves(rank) & unite(np.array([first_ns]), np.array([last_ns]))
    steps = unite(starts[trains], ends[trains]) - saves
    evaluated = unite(np.maximum(starts[evaluates], first_ns), ends[evaluates]) - saves
    optimizers = rank.manifest.facts.get("optimizers")
    is_one_each = made[trains].max() <= max(len(optimizers) if isinstance(optimizers, list) else 0, 1)
    return _Spent(
        first_ns,
        last_ns,
        len(updates),
        steps.length_ns,
        int(kept.sum()),
        (unite(starts[trains][kept], ends[trains][kept]) - saves).length_ns,
        saves.length_ns,
        evaluated.length_ns,
        int(updates[-1]) if is_one_each else None,
    )
