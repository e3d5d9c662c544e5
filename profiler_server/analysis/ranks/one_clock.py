"""Some ranks on the clock of the first of them: how far each is shifted, how it drifts, and how well that is known.

Ranks of one host share a clock. Others are aligned pair by pair, by the collectives that both leave together: so a rank
with a short recording costs no other rank its calls. Where two share none, a third one in between may.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from collector.format.intervals import Ints
from profiler_server.analysis.ranks.clocks import LEAST_CALLS
from profiler_server.analysis.ranks.matching import Meetings, match_calls
from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.derive.derived import derived

MOST_TOGETHER = 16
"""Ranks that one timeline shows, and ranks that others are aligned through."""
MOST_DRIFT = 0.01
"""No clock of a machine is off by so much: what fits such a drift are not the same calls."""
Known = Literal["reference", "host", "aligned", "unknown"]
Lack = Literal["", "unread", "no calls", "none shared", "few shared", "not together"]


@dataclass(frozen=True)
class RankClock:
    """Puts times of a rank on the clock of the first: time + `shift_ns` + `drift` · (time - `anchor_ns`).

    `known` by being the first itself, by the same host, or aligned; an unknown clock shifts nothing, and `lack` says
    why. `apart_ns` is the 95th percentile of how far apart the two leave the `calls` collectives that they share; None
    where they share too few.
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
        """Return times of the rank on the clock of the first."""
        if not self.drift:
            return times_ns + self.shift_ns
        since = (times_ns - self.anchor_ns).astype(np.float64)
        placed: Ints = times_ns + self.shift_ns + np.round(self.drift * since).astype(np.int64)
        return placed

    def read_back(self, time_ns: int) -> int:
        """Return what the clock of the rank reads at a time of the first."""
        since = time_ns - self.shift_ns - self.anchor_ns
        return self.anchor_ns + round(since / (1 + self.drift))

    def behind(self, between: RankClock) -> RankClock:
        """Return the clock of this rank if it was aligned with one that is itself aligned with the first."""
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
    """Return the clock of each rank, the first of which counts."""
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
    meetings = max(matched.meetings, key=_weigh, default=None)
    if meetings is None:
        return RankClock(other.rank, known, lack="none shared")
    return _read_meetings(other.rank, meetings, known)


def _weigh(meetings: Meetings) -> tuple[bool, int]:
    return meetings.alignment is not None, meetings.end_ns.shape[1]


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
