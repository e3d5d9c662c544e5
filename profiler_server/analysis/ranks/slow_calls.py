"""A collective of the step that is slow: it takes much longer than the others of its group would for as many bytes.

The time of a transfer is a latency and bytes by a speed, so what one takes, times the ratio of the bytes where that is
over 1, is the most that another one needs at the same speed. Waiting for a late rank is no part of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from collector.format.intervals import Floats, Ints
from profiler_server.analysis.ranks.calls import is_meeting
from profiler_server.analysis.ranks.collectives import count_members, find_attended, match_ranks, measure_transfers
from profiler_server.analysis.ranks.matching import Matched
from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.derive.derived import derived
from profiler_server.facts.ranks import SlowCall

SLOW_RATIO = 2.0
"""One is slow that takes so many times what it takes at most at the speed of the others."""
LEAST_EXCESS_FRAC = 0.01
"""Of the step; one that costs less is not named."""
LEAST_OTHERS = 2
"""Others of the group that it is compared with; of two alone, either may be the unusual one."""
LEAST_STEPS = 3
SURE_RESIDUALS = 4.0
"""What is slow must be so by this many times what clocks of several hosts are known to."""


@dataclass(frozen=True)
class _Place:
    """One call of a step, over the steps."""

    number: int
    count: int
    bytes: int
    transfer_ns: float
    steps: int


@derived(reads=lambda ranks: tuple((rank.steps, rank.step_ns, rank.calls) for rank in ranks))
def find_slow_call(ranks: Sequence[RankSummary]) -> SlowCall | None:
    """Return the slowest collective of the ranks, None where all are as fast as their like, or cannot be compared."""
    known = [rank for rank in ranks if rank.steps and rank.calls is not None]
    if len(known) < 2:
        return None
    stood = [one.step for rank in ranks for one in rank.standstills]
    step_ns = float(np.mean([rank.step_ns for rank in known]))
    return find_slowest(match_ranks(ranks), step_ns, stood)


def find_slowest(matched: Matched, step_ns: float, stood: Sequence[int] = ()) -> SlowCall | None:
    """Return the call that exceeds what is expected by most, if that is much; steps in which the job stood still aside."""
    wanted = (count_members(matched) > 1) & find_attended(matched) & (matched.bytes > 0) & (matched.step >= 0)
    wanted &= np.array([is_meeting(name) for _, name in matched.kinds], np.bool_)[matched.kind]
    wanted &= ~np.isin(matched.step, list(stood))
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return None
    totals = np.bincount(matched.call, measure_transfers(matched), matched.count)
    times = totals / np.maximum(np.bincount(matched.call, minlength=matched.count), 1)
    least_ns = max(LEAST_EXCESS_FRAC * step_ns, SURE_RESIDUALS * matched.clock_residual_ns)
    calls = (call for own in _part(matched, rows) for call in _compare(matched, own, times))
    slow = (call for call in calls if call.transfer_ns > SLOW_RATIO * call.expected_ns and call.excess_ns >= least_ns)
    return max(slow, key=lambda call: call.excess_ns, default=None)


def _part(matched: Matched, rows: Ints) -> Iterator[Ints]:
    """Yield the calls of each group as the rank has them that has most of them, in time order."""
    names = {group: at for at, group in enumerate(dict.fromkeys(group for group, _ in matched.kinds))}
    group = np.array([names[group] for group, _ in matched.kinds], np.int64)[matched.kind[rows]]
    order = np.argsort(group, kind="stable")
    for own in np.split(rows[order], np.flatnonzero(np.diff(group[order])) + 1):
        if len(own):
            chosen = own[matched.row_of[own] == np.bincount(matched.row_of[own]).argmax()]
            yield chosen[np.argsort(matched.end_ns[chosen], kind="stable")]


def _compare(matched: Matched, own: Ints, times: Floats) -> Iterator[SlowCall]:
    """Yield each call of a step beside the others of its name. Calls of a group run one after the other."""
    alone = np.diff(matched.end_ns[own], prepend=np.iinfo(np.int64).min // 2)
    transfer = np.minimum(times[matched.call[own]], alone)
    for kind in np.unique(matched.kind[own]).tolist():
        mine, (group, name) = matched.kind[own] == kind, matched.kinds[kind]
        places = _list_places(matched.step[own][mine], matched.bytes[own][mine], transfer[mine])
        for place in places:
            others = [other for other in places if other is not place]
            if len(others) >= LEAST_OTHERS:
                yield SlowCall(group=group, name=name, expected_ns=_expect(place, others), **asdict(place))


def _expect(place: _Place, others: Sequence[_Place]) -> float:
    """Return what a call takes at most at the usual speed of the others: of those that move no less, where there are some."""
    longer = [other for other in others if other.bytes >= place.bytes]
    chosen = longer if len(longer) >= LEAST_OTHERS else others
    return float(np.median([other.transfer_ns * max(1.0, place.bytes / other.bytes) for other in chosen]))


def _list_places(step: Ints, size: Ints, transfer_ns: Floats) -> list[_Place]:
    """Return the calls of a step by their order in it; without those whose bytes change."""
    order = np.argsort(step, kind="stable")
    steps, first = np.unique(step[order], return_index=True)
    number = np.empty(len(step), np.int64)
    number[order] = np.arange(len(step)) - np.repeat(first, np.diff(np.append(first, len(step))))
    count = int(number.max(initial=-1)) + 1
    found = []
    for at in range(count):
        mine = number == at
        if mine.sum() >= min(LEAST_STEPS, len(steps)) and np.ptp(size[mine]) == 0:
            time_ns = float(np.median(transfer_ns[mine]))
            found.append(_Place(at + 1, count, int(size[mine][0]), time_ns, int(mine.sum())))
    return found
