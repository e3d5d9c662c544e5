"""Collectives of all ranks: the time of the transfer, each rank's wait for the last rank, the last rank, and an
unusually slow call of the step.

Ranks have a common clock if they are on one host, or if their clocks are aligned by calls that end together. The
transfer of a rank then lasts from the arrival of the last rank to the rank's own end. Without a common clock, the
transfer is the shortest duration over the ranks. The rest of a call is the wait.

The time of a transfer is a latency plus bytes divided by a speed. So one transfer gives an upper bound for another at
the same speed: its time, multiplied by the ratio of the bytes if the ratio is over 1. A call is slow if it takes much
longer than other calls of its group would take for as many bytes. Waiting for a late rank is not included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from collector.format.intervals import Floats, Ints, Mask
from profiler_server.analysis.ranks.calls import Calls, is_meeting, number_groups
from profiler_server.analysis.ranks.lateness import measure_calls
from profiler_server.analysis.ranks.matching import Matched, is_awaited_later, match_calls
from profiler_server.analysis.ranks.ranks import RankSummary
from profiler_server.derive.derived import derived
from profiler_server.diagnosis.limits.meetings import LEAST_CALLS, LEAST_OTHERS, SLOW_RATIO, SURE_RESIDUALS
from profiler_server.diagnosis.limits.stragglers import LEAST_GAIN_FRAC
from profiler_server.facts.ranks import CollectiveRow, Collectives, SlowCall

# Bus bandwidth is algorithm bandwidth times this, in (n - 1) / n.
_BUS_FACTORS = {"allreduce": 2.0, "allgather": 1.0, "reducescatter": 1.0, "alltoall": 1.0}


def _list_calls(ranks: Sequence[RankSummary]) -> tuple[Calls, ...]:
    return tuple(rank.calls for rank in ranks if rank.calls is not None)


@derived(reads=_list_calls)
def match_ranks(ranks: Sequence[RankSummary]) -> Matched:
    calls = {rank.rank: rank.calls for rank in ranks if rank.calls is not None}
    return match_calls(calls, _has_one_host(ranks))


@derived(reads=_list_calls)
def summarize_collectives(ranks: Sequence[RankSummary]) -> tuple[CollectiveRow, ...]:
    """Sum the collectives of the ranks by rank and name; empty without recorded collectives."""
    return sum_collectives(match_ranks(ranks), [one.step for rank in ranks for one in rank.standstills])


def list_collectives(ranks: Sequence[RankSummary]) -> Collectives:
    """Return the collectives of the ranks by rank and name, and how their times were compared between ranks."""
    matched = match_ranks(ranks)
    in_windows = not any(rank.calls is not None and (rank.calls.held_ns >= 0).any() for rank in ranks)
    return Collectives(summarize_collectives(ranks), matched.clock, matched.clock_residual_ns, in_windows)


def _has_one_host(ranks: Sequence[RankSummary]) -> bool:
    """Return whether the ranks are on one host, and so share a clock.

    False for traces, which do not name their hosts, and whose times may each begin at 0.
    """
    hosts = {rank.host for rank in ranks if rank.calls is not None}
    return len(hosts) == 1 and "" not in hosts


def sum_collectives(matched: Matched, stood: Sequence[int] = ()) -> tuple[CollectiveRow, ...]:
    """Sum matched calls by rank and name, sorted by both, without the steps `stood`, in which the job stood still."""
    wanted = np.flatnonzero(~np.isin(matched.step, list(stood)))
    if not len(wanted):
        return ()
    rows = _join(matched)
    named = np.array([name for _, name in matched.kinds])
    names, name_of = np.unique(named, return_inverse=True)
    place = matched.row_of * len(names) + name_of[matched.kind]
    order = wanted[np.argsort(place[wanted], kind="stable")]
    bounds = np.flatnonzero(np.diff(place[order])) + 1
    return tuple(
        _sum_rows(
            rows, chosen, matched.ranks[int(matched.row_of[chosen[0]])], str(names[place[chosen[0]] % len(names)])
        )
        for chosen in np.split(order, bounds)
    )


def _join(matched: Matched) -> _Joined:
    clocked = _is_clocked(matched)
    later = is_awaited_later(matched.waiting_ns, matched.duration_ns)
    transfer = measure_transfers(matched)
    least_wait = _of_call(np.minimum, matched, matched.waiting_ns)
    wait = np.where(later, matched.waiting_ns - least_wait, matched.duration_ns - transfer)
    return _Joined(
        matched.duration_ns,
        matched.bytes,
        matched.group_size,
        transfer,
        wait,
        np.where(find_attended(matched), count_members(matched), 1),
        _find_last(matched, np.where(clocked, matched.arrival_ns, -matched.waiting_ns)),
    )


def count_members(matched: Matched) -> Ints:
    """Return for each row the number of ranks that made its call."""
    return np.bincount(matched.call, minlength=matched.count)[matched.call]


def find_attended(matched: Matched) -> Mask:
    """Return a mask of the rows whose call has a row of each expected rank.

    A rank is expected if it has calls of this kind both before and after the step. A rank that did not wait, such as
    the last rank, may have no row. The rows of the ranks that waited then show neither the arrival of the last rank nor
    the length of the transfer.
    """
    counted = matched.step >= 0
    shape = (len(matched.kinds), len(matched.ranks))
    first, last = np.full(shape, np.iinfo(np.int64).max), np.full(shape, -1, np.int64)
    place = (matched.kind[counted], matched.row_of[counted])
    np.minimum.at(first, place, matched.step[counted])
    np.maximum.at(last, place, matched.step[counted])
    expected = np.zeros(len(matched.step), np.int64)
    for kind in range(len(matched.kinds)):
        mine = counted & (matched.kind == kind)
        begun = np.searchsorted(np.sort(first[kind]), matched.step[mine], "right")
        expected[mine] = begun - np.searchsorted(np.sort(last[kind][last[kind] >= 0]), matched.step[mine], "left")
    return count_members(matched) >= expected


def measure_transfers(matched: Matched) -> Ints:
    """Return the ns of the transfer for each row.

    On a common clock the transfer begins with the arrival of the last rank. Otherwise it is the shortest duration over
    the ranks.
    """
    later = is_awaited_later(matched.waiting_ns, matched.duration_ns)
    shortest = _of_call(np.minimum, matched, matched.duration_ns)
    last_arrival = _of_call(np.maximum, matched, matched.arrival_ns)
    by_clock = np.clip(matched.left_ns - last_arrival, 0, matched.duration_ns)
    return np.where(_is_clocked(matched) & ~later, by_clock, shortest)


def _is_clocked(matched: Matched) -> Mask:
    """Return a mask of the rows whose call has the times of all of its ranks on a common clock."""
    found: Mask = matched.is_clocked & (
        np.bincount(matched.call, ~matched.is_clocked, matched.count)[matched.call] == 0
    )
    return found


def _of_call(reduce: np.ufunc, matched: Matched, values: Ints) -> Ints:
    """Return for each row the reduction (such as the maximum) of `values` over all rows of its call."""
    order = np.argsort(matched.call, kind="stable")
    starts = np.searchsorted(matched.call[order], np.arange(matched.count))
    return reduce.reduceat(values[order], starts)[matched.call]


def _find_last(matched: Matched, lateness: Ints) -> Mask:
    """Return a mask of the rows whose rank came last to its call. Of equally late ranks, only the first row is marked.

    The lateness that `measure_calls` returns decides; where it is missing, the argument `lateness` decides.
    """
    call = matched.call
    order = np.lexsort((-np.arange(len(call)), lateness, call))
    latest = np.full(matched.count, -1, np.int64)
    latest[call[order]] = order  # for each call the last assignment stays: the greatest lateness
    judged = measure_calls(matched)
    if judged is not None:
        numbers = np.concatenate([group.call[1:] for group in matched.meetings if len(group.call) > 1])
        rows = np.full((len(matched.ranks), matched.count), -1, np.int32)
        rows[matched.row_of, call] = np.arange(len(call))
        # A call that a rank does not list is not judged: that rank may have come last.
        is_whole = np.isfinite(judged.late_ns).sum(axis=0) == np.bincount(call, minlength=matched.count)[numbers]
        latest[numbers[is_whole]] = rows[judged.last, numbers][is_whole]
    found = np.zeros(len(call), np.bool_)
    found[latest] = True
    return found


@dataclass(frozen=True)
class _Joined:
    """The calls of all ranks, one row per call and rank.

    `members` is the number of ranks that made the call; it is 1 if the row of an expected rank is missing
    (`find_attended`)."""

    duration_ns: Ints
    bytes: Ints
    group_size: Ints
    transfer_ns: Ints
    wait_ns: Ints
    members: Ints
    is_last: Mask


def _sum_rows(rows: _Joined, chosen: Ints, rank: int, name: str) -> CollectiveRow:
    matched = chosen[rows.members[chosen] > 1]
    some = bool(len(matched))
    sized = chosen[rows.bytes[chosen] > 0]
    timed = np.intersect1d(sized, matched, assume_unique=True) if some else sized
    # Both bandwidths are of the same calls: of some calls only, the one on the bus would be no part of the other.
    grouped = timed if bool((rows.group_size[timed] > 1).all()) else timed[:0]
    return CollectiveRow(
        rank=rank,
        name=name,
        count=len(chosen),
        matched=len(matched),
        total_ns=int(rows.duration_ns[chosen].sum()),
        transfer_ns=int(rows.transfer_ns[matched].sum()) if some else None,
        wait_ns=int(rows.wait_ns[matched].sum()) if some else None,
        late=int(rows.is_last[matched].sum()),
        bytes=int(rows.bytes[sized].sum()) if len(sized) else None,
        algorithm_bytes_per_s=_measure_bandwidth(rows, timed),
        bus_bytes_per_s=_measure_bus(rows, grouped, name),
    )


def _measure_bandwidth(rows: _Joined, chosen: Ints, factors: Floats | None = None) -> float | None:
    """Return the bandwidth of the chosen calls in bytes per second, None if the transfer time is 0.

    The bytes of each call are multiplied by its factor, if factors are given.
    """
    spent = int(rows.transfer_ns[chosen].sum())
    moved = rows.bytes[chosen] if factors is None else rows.bytes[chosen] * factors
    return float(moved.sum() / spent * 1e9) if spent else None


def _measure_bus(rows: _Joined, chosen: Ints, name: str) -> float | None:
    plain = name.lower().replace("_", "")
    factor = next((value for key, value in _BUS_FACTORS.items() if key in plain), None)
    size = rows.group_size[chosen]
    return None if factor is None else _measure_bandwidth(rows, chosen, factor * (size - 1) / size)


@dataclass(frozen=True)
class _Place:
    """A position in the calls of a step: call `number` of `count`. `transfer_ns` is the median over `steps` steps."""

    number: int
    count: int
    bytes: int
    transfer_ns: float
    steps: int


@derived(reads=lambda ranks: tuple((rank.steps, rank.step_ns, rank.calls) for rank in ranks))
def find_slow_call(ranks: Sequence[RankSummary]) -> SlowCall | None:
    """Return the collective of the step that exceeds its expected time most. Steps with a standstill are left out.

    None if no call is much slower than similar calls, or if the calls are not comparable.
    """
    known = [rank for rank in ranks if rank.steps and rank.calls is not None]
    if len(known) < 2:
        return None
    stood = [one.step for rank in ranks for one in rank.standstills]
    step_ns = float(np.mean([rank.step_ns for rank in known]))
    return find_slowest(match_ranks(ranks), step_ns, stood)


def find_slowest(matched: Matched, step_ns: float, stood: Sequence[int] = ()) -> SlowCall | None:
    wanted = (count_members(matched) > 1) & find_attended(matched) & (matched.bytes > 0) & (matched.step >= 0)
    wanted &= np.array([is_meeting(name) for _, name in matched.kinds], np.bool_)[matched.kind]
    wanted &= ~np.isin(matched.step, list(stood))
    rows = np.flatnonzero(wanted)
    if not len(rows):
        return None
    totals = np.bincount(matched.call, measure_transfers(matched), matched.count)
    times = totals / np.maximum(np.bincount(matched.call, minlength=matched.count), 1)
    least_ns = max(LEAST_GAIN_FRAC * step_ns, SURE_RESIDUALS * matched.clock_residual_ns)
    calls = (call for own in _part(matched, rows) for call in _compare(matched, own, times))
    slow = (call for call in calls if call.transfer_ns > SLOW_RATIO * call.expected_ns and call.excess_ns >= least_ns)
    return max(slow, key=lambda call: call.excess_ns, default=None)


def _part(matched: Matched, rows: Ints) -> Iterator[Ints]:
    """Yield for each group the rows of its calls in time order, taken from the rank with most calls in this group."""
    group = number_groups(matched.kinds, matched.kind[rows])
    order = np.argsort(group, kind="stable")
    for own in np.split(rows[order], np.flatnonzero(np.diff(group[order])) + 1):
        if len(own):
            chosen = own[matched.row_of[own] == np.bincount(matched.row_of[own]).argmax()]
            yield chosen[np.argsort(matched.end_ns[chosen], kind="stable")]


def _compare(matched: Matched, own: Ints, times: Floats) -> Iterator[SlowCall]:
    """Yield a SlowCall for each position in a step: its time, and the time expected from other calls of the same name.
    `own` are rows of one group.

    Calls of a group run one after the other. So a transfer is at most as long as the time since the end of the previous
    call.
    """
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
    """Return the expected time of a call in ns.

    Each of `others` gives an upper bound for this time, and the expected time is the median of the bounds. Calls with
    fewer bytes are left out if enough larger ones remain.
    """
    longer = [other for other in others if other.bytes >= place.bytes]
    chosen = longer if len(longer) >= LEAST_OTHERS else others
    return float(np.median([other.transfer_ns * max(1.0, place.bytes / other.bytes) for other in chosen]))


def _list_places(step: Ints, size: Ints, transfer_ns: Floats) -> list[_Place]:
    """Return the calls of a step by position. Positions that few steps have, or whose bytes change, are left out."""
    order = np.argsort(step, kind="stable")
    steps, first = np.unique(step[order], return_index=True)
    number = np.empty(len(step), np.int64)
    number[order] = np.arange(len(step)) - np.repeat(first, np.diff(np.append(first, len(step))))
    count = int(number.max(initial=-1)) + 1
    found = []
    for at in range(count):
        mine = number == at
        if mine.sum() >= min(LEAST_CALLS, len(steps)) and np.ptp(size[mine]) == 0:
            time_ns = float(np.median(transfer_ns[mine]))
            found.append(_Place(at + 1, count, int(size[mine][0]), time_ns, int(mine.sum())))
    return found
