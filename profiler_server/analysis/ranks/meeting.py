"""One collective as the ranks came to it: who was there first, who last, and how long each waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collector.format.intervals import Ints
from profiler_server.analysis.ranks.collectives import match_ranks
from profiler_server.analysis.ranks.matching import Matched
from profiler_server.analysis.ranks.ranks import RankSummary


@dataclass(frozen=True)
class Arrival:
    """One rank's call, on its own clock. `late_ns` is how long after the first rank it came."""

    rank: int
    start_ns: int
    duration_ns: int
    late_ns: int


@dataclass(frozen=True)
class Meeting:
    """A collective that several ranks called, in the order in which they came.

    `by_clock` says that they are ordered by their clocks, of which two agree within `sure_ns`; else by how long each was
    in it: the one for which it was shortest came last.
    """

    name: str
    arrivals: tuple[Arrival, ...]
    by_clock: bool
    sure_ns: float

    @property
    def spread_ns(self) -> int:
        return self.arrivals[-1].late_ns


def find_meeting(ranks: Sequence[RankSummary], rank: int, start_ns: int, duration_ns: int) -> Meeting | None:
    """Return the collective of which a rank's call has those times, None for no collective, or one of that rank alone."""
    matched = match_ranks(ranks)
    if rank not in matched.ranks:
        return None
    begins = matched.end_ns - matched.duration_ns
    own = (matched.row_of == matched.ranks.index(rank)) & (begins == start_ns) & (matched.duration_ns == duration_ns)
    rows = np.flatnonzero(own)
    members = np.flatnonzero(matched.call == matched.call[rows[0]]) if len(rows) else rows
    return _order(matched, members) if len(members) > 1 else None


def _order(matched: Matched, members: Ints) -> Meeting:
    by_clock = bool(matched.is_clocked[members].all())
    came = matched.arrival_ns[members] if by_clock else -matched.waiting_ns[members]
    late = came - came.min()
    numbers = np.array(matched.ranks)[matched.row_of[members]]
    order = np.lexsort((numbers, late))
    arrivals = (
        Arrival(
            int(numbers[at]),
            int((matched.end_ns - matched.duration_ns)[members[at]]),
            int(matched.duration_ns[members[at]]),
            int(late[at]),
        )
        for at in order.tolist()
    )
    name = matched.kinds[int(matched.kind[members[0]])][1]
    # The residual is that of one rank against the median of all, which either of two may be away from.
    return Meeting(name, tuple(arrivals), by_clock, 2 * matched.clock_residual_ns if by_clock else 0.0)
