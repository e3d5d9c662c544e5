"""Several ranks on the clock of the first rank: shift and drift of each clock, and the ranks that are worth viewing
together.

Ranks of one host share a clock. Other ranks are aligned in pairs, by the collectives that both leave together. So a
rank with a short recording does not reduce the number of calls for other ranks. Two ranks without a common collective
may be aligned through a third rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from collector.format.intervals import Ints
from collector.format.run import RankRun, Run
from collector.format.schema.errors import read_or
from profiler_server.analysis.ranks.matching import Meetings, match_calls
from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.analysis.ranks.stragglers import judge_ranks, measure_waits
from profiler_server.derive.derived import derived
from profiler_server.diagnosis.limits.meetings import LEAST_CALLS, MOST_DRIFT
from profiler_server.facts.ranks import Example, find_noun

MOST_TOGETHER = 16
"""The greatest number of ranks in one timeline, and of ranks through which others are aligned."""
Known = Literal["reference", "host", "aligned", "unknown"]
Lack = Literal["", "unread", "no calls", "none shared", "few shared", "not together"]


@dataclass(frozen=True)
class RankClock:
    """The conversion of a rank's times to the clock of the first rank: time + `shift_ns` + `drift` · (time -
    `anchor_ns`).

    A clock is `known` for the first rank, for ranks on the same host, and for aligned ranks. An unknown clock has no
    shift, and `lack` is the reason. `apart_ns` is the 95th percentile of the time between both ranks' ends of the
    `calls` common collectives, after conversion. It is None with too few collectives.
    """

    rank: int
    known: Known
    anchor_ns: int = 0
    shift_ns: int = 0
    drift: float = 0.0
    apart_ns: float | None = None
    calls: int = 0
    lack: Lack = ""

    def place(self, times_ns: Ints) -> Ints:
        """Return the rank's times on the clock of the first rank."""
        if not self.drift:
            return times_ns + self.shift_ns
        since = (times_ns - self.anchor_ns).astype(np.float64)
        return times_ns + self.shift_ns + np.round(self.drift * since).astype(np.int64)

    def read_back(self, time_ns: int) -> int:
        """Return the time on the rank's own clock that corresponds to a time on the first rank's clock."""
        since = time_ns - self.shift_ns - self.anchor_ns
        return self.anchor_ns + round(since / (1 + self.drift))

    def behind(self, between: RankClock) -> RankClock:
        """Return this clock as relative to the first rank, where it is now relative to the rank of the clock
        `between`."""
        if between.known == "reference":
            return self
        onto = int(between.place(np.array([self.anchor_ns + self.shift_ns], np.int64))[0])
        apart = [entry.apart_ns for entry in (self, between) if entry.apart_ns is not None]
        return replace(
            self,
            known="host" if self.known == between.known == "host" else "aligned",
            shift_ns=onto - self.anchor_ns,
            drift=(1 + self.drift) * (1 + between.drift) - 1,
            apart_ns=sum(apart) if apart else None,
        )


@derived(reads=lambda ranks: tuple((rank.rank, rank.host, rank.calls) for rank in ranks))
def align_ranks(ranks: Sequence[RankSummary]) -> tuple[RankClock, ...]:
    """Return the clock of each rank, relative to the first rank."""
    found = {ranks[0].rank: RankClock(ranks[0].rank, "reference")}
    lacks: dict[int, RankClock] = {}
    reached = [ranks[0]]
    waiting = list(ranks[1:])
    for tried, between in enumerate(reached):
        for other in waiting if tried < MOST_TOGETHER else ():
            own = _align_pair(between, other)
            if own.known == "unknown":
                lacks.setdefault(other.rank, own)
            else:
                found[other.rank] = own.behind(found[between.rank])
                reached.append(other)
        waiting = [rank for rank in waiting if rank.rank not in found]
    return tuple(found.get(rank.rank) or lacks[rank.rank] for rank in ranks)


def _align_pair(first: RankSummary, other: RankSummary) -> RankClock:
    one_host = bool(first.host) and first.host == other.host
    known: Known = "host" if one_host else "unknown"
    if first.calls is None or other.calls is None:
        return RankClock(other.rank, known, lack="no calls" if other.is_read else "unread")
    matched = match_calls({first.rank: first.calls, other.rank: other.calls}, one_host)
    meetings = max(matched.meetings, key=lambda own: (own.alignment is not None, own.end_ns.shape[1]), default=None)
    if meetings is None:
        return RankClock(other.rank, known, lack="none shared")
    return _read_meetings(other.rank, meetings, known)


def _read_meetings(rank: int, meetings: Meetings, known: Known) -> RankClock:
    ends, calls = meetings.end_ns, meetings.end_ns.shape[1]
    found = RankClock(rank, known, calls=calls)
    if meetings.alignment is not None and abs(meetings.alignment.drift[1]) <= MOST_DRIFT:
        origin, offset, drift = (getattr(meetings.alignment, name)[1] for name in ("origin_ns", "offset_ns", "drift"))
        found = replace(found, known="aligned", anchor_ns=int(origin), shift_ns=-int(offset), drift=-float(drift))
    elif known == "unknown":
        return replace(found, lack="few shared" if calls < LEAST_CALLS else "not together")
    if calls < LEAST_CALLS:
        return found
    apart = np.abs(found.place(ends[1]) - ends[0])
    return replace(found, apart_ns=float(np.percentile(apart, 95)))


WAITING = 2
_MOST_DETAILED = 1_000
"""The greatest number of examined steps of a window. It protects against manifests from untrusted sources."""


def prefer_detailed(example: Example | None, run: Run) -> Example | None:
    """Return `example` with the nearest step that all its ranks recorded in detail; unchanged if there is none."""
    if example is None or example.step is None:
        return example
    steps = [_read_detailed(run.read_rank(rank)) for rank in example.ranks]
    common = set.intersection(*steps)
    nearest = min(common, key=lambda step: (abs(step - (example.step or 0)), step), default=example.step)
    return replace(example, step=nearest)


def _read_detailed(rank: RankRun) -> set[int]:
    windows = read_or((), lambda: rank.manifest.windows)
    return {step for window in windows for step in range(window.first_step, window.last_step + 1)[:_MOST_DETAILED]}


def choose_example(ranks: Sequence[RankSummary]) -> Example | None:
    """Return the slowest rank and the longest waiting ranks, in a typical step; None for fewer than two ranks."""
    known = [rank.rank for rank in ranks if rank.steps]
    if len(known) < 2:
        return None
    comparison, waits = judge_ranks(ranks).comparison, measure_waits(ranks)
    if comparison is None or waits is None:
        return Example(tuple(known[: 1 + WAITING]), None)
    latest = comparison.latest.rank
    numbers, steps, waited = waits
    order = np.argsort(-waited.mean(axis=1), kind="stable")
    others = [numbers[row] for row in order.tolist() if numbers[row] != latest]
    chosen = (latest, *others[:WAITING])
    if find_noun(ranks) != "step":
        return Example(chosen, None)
    # A step in which it was the last, and they waited as long as they usually do.
    late = np.flatnonzero((waited[numbers.index(latest)] == 0) & (steps >= 0))
    longest = waited.max(axis=0)[late]
    usual = late[np.argsort(longest, kind="stable")[len(late) // 2]] if len(late) else None
    return Example(chosen, None if usual is None else int(steps[usual]))
