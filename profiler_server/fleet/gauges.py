"""The figures of runs that record or ended recently. All monitoring systems get the same figures, read once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np

from collector.format.phases import PHASE_NAMES
from collector.format.rank import RankRun
from collector.format.recent import read_recent
from collector.format.run import Run
from collector.format.schema import layout
from collector.format.schema.errors import RunError
from collector.format.schema.manifest import RankManifest, RunState
from collector.hangs.live import find_standing
from profiler_server.derive.background import Background
from profiler_server.derive.derived import derived
from profiler_server.store.catalog import Catalog
from profiler_server.store.headline import RunEntry, choose_state

MOST_RUNS = 100
MOST_RANKS = 16_384
"""The most ranks of a run that are read: the first ones."""
READ_LIMIT_S = 0.25
"""Time for reading ranks, s. Remaining ranks keep their previous figures, and are read again in the background."""
LATE_LIMIT_S = 2.0
"""Time for reading known ranks again in the background, s, so that a job of thousands of ranks keeps no core busy."""
ENDED_WITHIN_S = 15 * 60.0
REFRESH_S = 5.0
"""Time for which a reading is reused for all requests."""
LIST_S = 10.0
"""Longest age of the list of runs. Listing thousands of runs takes longer than a scrape may."""
LONGEST_LABEL = 200
FEW_RANKS = 8
"""Number of ranks of each run that are read regardless of time."""
_STEPS_LOST = "steps_lost"


@dataclass(frozen=True)
class RankGauges:
    """The state of one rank, and means in ns over its last 50 steady steps; the means are None without a step.

    `ended_unix_ns` is the end of its recording, None before. `events_lost` is the number of events that were
    overwritten before they were read. `own_ns` is the step without the time held in collectives. `between_ns` is the
    time between steps, per step. `lost_steps`: some steps were not recorded.
    """

    rank: int
    state: RunState
    ended_unix_ns: int | None
    events_lost: int
    lost_steps: bool
    step_ns: float | None = None
    own_ns: float | None = None
    between_ns: float | None = None
    phases_ns: Mapping[str, float] | None = None


@dataclass(frozen=True)
class RunGauges:
    """The figures of one run. `label` is its id as a printable, short and unique text. `steps` is the number of its
    steps. `ranks` is the number of ranks with a folder, of `world_size` in the job. The figures cover `ranks_read` of
    these ranks; the others cannot be read or are not read yet.

    `events_lost` is a sum over the ranks, `ranks_losing_steps` a number of ranks. Means are over the last 50 steady
    steps of each rank, then over the ranks; None without a step. `slowdown_ratio` is the own work of `slowest_rank`
    (its step without collectives) divided by the median of the other ranks. Both are None for one rank, or if no
    rank has time in collectives.
    """

    label: str
    state: RunState
    steps: int
    world_size: int
    ranks: int
    ranks_read: int
    events_lost: int
    ranks_losing_steps: int
    step_ns: float | None = None
    phases_ns: Mapping[str, float] | None = None
    slowest_rank: int | None = None
    slowdown_ratio: float | None = None
    standing_s: float = 0.0
    """Time for which the run has stood still, s; 0 if it makes progress."""

    @property
    def data_wait_frac(self) -> float | None:
        return self.phases_ns["data_wait"] / self.step_ns if self.step_ns and self.phases_ns else None


class Gauges:
    """The figures of a catalog's runs, read anew at most once in five seconds. Several threads may use one object."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._read_s = float("-inf")
        self._gauges: tuple[RunGauges, ...] = ()
        self._listed: Sequence[RunEntry] | None = None
        self._listed_s = float("-inf")
        self._background = Background(head_start=False)
        self._turns: dict[Path, int] = {}
        self._late: list[RankRun] = []

    def read(self) -> tuple[RunGauges, ...]:
        """Return the figures of the newest 100 runs that record or ended within fifteen minutes.

        An old list of runs is rebuilt in the background, so a new run appears in a later answer. Ranks that could not
        be read in time for this answer are read in the background, too.
        """
        with self._lock:
            if time.monotonic() - self._read_s > REFRESH_S:
                self._late.clear()
                self._gauges = self._read_runs(self._find_runs(), time.time_ns())
                self._read_s = time.monotonic()
                if self._late:
                    late = tuple(self._late)
                    self._background.start("ranks", lambda: self._catch_up(late))
            return self._gauges

    def _catch_up(self, ranks: Sequence[RankRun]) -> None:
        """Read ranks for the next answer. A rank that was never read is always read. Other ranks are read only within
        two seconds.
        """
        until_s = time.monotonic() + LATE_LIMIT_S
        for rank in ranks:
            if time.monotonic() > until_s and _read_rank.find(_read_rank.ask(rank)) is not None:
                continue  # this run is reported as before, and is read in its turn
            _read_rank(rank)
            with self._lock:
                self._turns[rank.run_path] = self._turns.get(rank.run_path, 0) + 1
        with self._lock:
            self._read_s = float("-inf")

    def _find_runs(self) -> Sequence[RunEntry]:
        if self._listed is None:
            self._list()
        elif time.monotonic() - self._listed_s > LIST_S:
            self._background.start("list", self._list)
        return self._listed or ()

    def _list(self) -> None:
        listing = self._catalog.list_runs(within_s=1.0)
        self._listed = listing.runs
        self._listed_s = float("-inf") if listing.unread else time.monotonic()

    def _read_runs(self, runs: Sequence[RunEntry], now_ns: int) -> tuple[RunGauges, ...]:
        found: list[RunGauges] = []
        live = [entry for entry in runs if _may_be_live(entry, now_ns)]
        self._turns = {entry.path: self._turns.get(entry.path, 0) for entry in live}
        until_s = time.monotonic() + READ_LIMIT_S
        for entry in live:
            if len(found) == MOST_RUNS:
                break
            if (gauges := self._read_run(entry, now_ns, until_s)) is not None:
                found.append(gauges)
        return tuple(found)

    def _read_run(self, entry: RunEntry, now_ns: int, until_s: float) -> RunGauges | None:
        ranks = self._read_ranks(entry, until_s)
        if not any(rank.state == "recording" for rank in ranks):
            ended = max((rank.ended_unix_ns or 0 for rank in ranks), default=0)
            if now_ns - ended > ENDED_WITHIN_S * 1e9:
                return None
        standing = find_standing([Run(entry.path).read_rank(rank) for rank in entry.headline.ranks])
        return replace(_sum_up(entry, ranks), standing_s=standing.for_ns / 1e9 if standing is not None else 0.0)

    def _read_ranks(self, entry: RunEntry, until_s: float) -> list[RankGauges]:
        """Return the figures of a run's ranks, read until the time `until_s`, beginning where the last call stopped."""
        run = Run(entry.path)
        numbers = entry.headline.ranks[:MOST_RANKS]
        begin = self._turns[entry.path] % max(len(numbers), 1)
        found: dict[int, RankGauges | None] = {}
        for at, number in enumerate((*numbers[begin:], *numbers[:begin])):
            rank = run.read_rank(number)
            if at >= FEW_RANKS and time.monotonic() > until_s:
                known = _read_rank.find(_read_rank.ask(rank))
                found[number] = None if known is None else known.value
                self._late.append(rank)
                continue
            found[number] = _renew(rank, _read_rank(rank))
            self._turns[entry.path] = begin + at + 1
        return [gauges for number in numbers if (gauges := found[number]) is not None]


def _may_be_live(entry: RunEntry, now_ns: int) -> bool:
    """Return whether a run records or may have ended recently, judged by the change time of the first rank's manifest."""
    if entry.state == "imported" or not entry.headline.ranks:
        return False
    if entry.state == "recording":
        return True
    with suppress(OSError):
        changed_ns = os.stat(layout.rank_file(entry.path, entry.headline.ranks[0])).st_mtime_ns
        return now_ns - changed_ns < ENDED_WITHIN_S * 1e9
    return False


def _renew(rank: RankRun, known: RankGauges | None) -> RankGauges | None:
    """Return the figures of a rank with its present state; None if `known` is None, or if the state cannot be read.
    When a process dies, the state changes but no file does.
    """
    try:
        return replace(known, state=rank.state) if known is not None and known.state == "recording" else known
    except RunError:
        return None


@derived()
def _read_rank(rank: RankRun) -> RankGauges | None:
    try:
        manifest, state = rank.manifest, rank.state
    except RunError:
        return None
    try:
        return _read_steps(rank, manifest, state)
    except RunError:
        return _describe(rank, manifest, state)


def _describe(rank: RankRun, manifest: RankManifest, state: RunState) -> RankGauges:
    lost = any(warning.code == _STEPS_LOST for warning in manifest.warnings)
    return RankGauges(rank.rank, state, manifest.ended_unix_ns, manifest.events_lost, lost)


def _read_steps(rank: RankRun, manifest: RankManifest, state: RunState) -> RankGauges:
    known = _describe(rank, manifest, state)
    found = read_recent(rank)
    if found is None:
        return known
    own_ns = found.step_ns - found.phases_ns["communication"]
    return replace(known, step_ns=found.step_ns, own_ns=own_ns, between_ns=found.between_ns, phases_ns=found.phases_ns)


def _sum_up(entry: RunEntry, ranks: Sequence[RankGauges]) -> RunGauges:
    timed = [rank for rank in ranks if rank.step_ns is not None and rank.phases_ns is not None]
    slowest, ratio = _find_slowest(timed)
    return RunGauges(
        label=make_label(entry.id),
        state=choose_state({rank.state for rank in ranks}),
        steps=entry.headline.steps,
        world_size=entry.manifest.world_size,
        ranks=len(entry.headline.ranks),
        ranks_read=len(ranks),
        events_lost=sum(rank.events_lost for rank in ranks),
        ranks_losing_steps=sum(rank.lost_steps for rank in ranks),
        step_ns=float(np.mean([rank.step_ns for rank in timed])) if timed else None,
        phases_ns={name: float(np.mean([(rank.phases_ns or {})[name] for rank in timed])) for name in PHASE_NAMES}
        if timed
        else None,
        slowest_rank=slowest,
        slowdown_ratio=ratio,
    )


def _find_slowest(timed: Sequence[RankGauges]) -> tuple[int | None, float | None]:
    """Return the rank with the most own work (step without collectives), and the ratio of this work to the median of
    the other ranks.

    Both are None if working and waiting cannot be separated. Work between steps that every rank does is left out,
    because it makes no rank wait.
    """
    if len(timed) < 2 or not any((rank.phases_ns or {})["communication"] for rank in timed):
        return None, None
    least = min(rank.between_ns or 0.0 for rank in timed)
    own = {rank.rank: (rank.own_ns or 0.0) + (rank.between_ns or 0.0) - least for rank in timed}
    slowest = max(own, key=lambda number: own[number])
    others = float(np.median([value for number, value in own.items() if number != slowest]))
    return (slowest, own[slowest] / others) if others > 0 else (None, None)


def make_label(run_id: str) -> str:
    """Return a run id as a label, which is printable and short. A changed id ends in a digest, so that no two runs get
    the same label.
    """
    text = "".join(letter if letter.isprintable() else "?" for letter in run_id)
    if text == run_id and len(text) <= LONGEST_LABEL:
        return text
    digest = blake2b(run_id.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{text[: LONGEST_LABEL - 9]}~{digest}"
