"""Matching of calls across ranks: which rows are one collective, and when each rank entered it on a common clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from collector.format.intervals import Ints, Mask
from profiler_server.analysis.ranks.calls import Calls, number_groups
from profiler_server.analysis.ranks.clocks import (
    Alignment,
    align_clocks,
    measure_spread,
)
from profiler_server.analysis.ranks.together import find_whole
from profiler_server.diagnosis.limits.facts import MOST_FRAC
from profiler_server.diagnosis.limits.meetings import (
    ALIGNED_FRAC,
    APART_FRAC,
    APART_NS,
    AT_ONCE_FRAC,
    ENOUGH_CALLS,
    FAR_RATIO,
    LEAST_CALLS,
    LEAST_HELD_NS,
    MISSED_FRAC,
    TOGETHER_NS,
)
from profiler_server.diagnosis.limits.stragglers import LEAST_MEETINGS
from profiler_server.facts.job import Strangers
from profiler_server.facts.ranks import Clock


@dataclass(frozen=True, eq=False)
class Matched:
    """The calls of all ranks, one row per call and rank. `row_of` is the index of the row's rank in `ranks`.

    `call` is the number of the collective, of `count` collectives in all. `kind` is an index in `kinds`, which are
    (group, name). `begin_ns` is the time at which the rank began to wait, and `end_ns` the time at which it left, on
    its own clock. If `is_clocked`, `arrival_ns` and `left_ns` are the same times on a common clock of the group.

    If the ranks did not meet, `apart_ns` maps each rank to the time from its first to its last meeting. The calls of
    these ranks are not matched, and neither are the calls of `strangers`.
    """

    ranks: tuple[int, ...]
    kinds: tuple[tuple[str, str], ...]
    row_of: Ints
    call: Ints
    kind: Ints
    step: Ints
    begin_ns: Ints
    end_ns: Ints
    arrival_ns: Ints
    left_ns: Ints
    is_clocked: Mask
    duration_ns: Ints
    bytes: Ints
    group_size: Ints
    count: int
    meetings: tuple[Meetings, ...] = ()
    clock: Clock = "one"
    clock_residual_ns: float = 0.0
    apart_ns: Mapping[int, int] = field(default_factory=dict)
    strangers: Strangers | None = None

    @property
    def waiting_ns(self) -> Ints:
        return self.end_ns - self.begin_ns

    def find_rows(self, row: int, among: Mask) -> Ints:
        """Return the indexes of the calls that belong to the rank at index `row` and are in the mask `among`. The calls
        of one rank are contiguous.
        """
        begin, end = np.searchsorted(self.row_of, (row, row + 1)).tolist()
        found: Ints = begin + np.flatnonzero(among[begin:end])
        return found


@dataclass(frozen=True, eq=False)
class Meetings:
    """The common meetings of the ranks of one group, in time order: (ranks, meetings).

    `rows` are indexes in `Matched.ranks`, `call` are numbers of calls, and `places` is the index of each (rank,
    meeting) in all calls. Times are on each rank's own clock. `alignment` converts them to the clock of the first row;
    it is None for a shared clock, or if the clocks cannot be aligned.
    """

    rows: Ints
    call: Ints
    step: Ints
    begin_ns: Ints
    end_ns: Ints
    places: Ints
    alignment: Alignment | None = None

    @property
    def held_ns(self) -> Ints:
        return self.end_ns - self.begin_ns


def match_calls(calls: Mapping[int, Calls], one_clock: bool) -> Matched:
    """Return the calls of the ranks, matched by group and number, or by step and order within the step.

    `one_clock` means that all ranks are on one host. The clocks are aligned nevertheless if common calls end far apart.
    """
    owned = list(calls.values())
    numbers: dict[tuple[str, str], int] = {}
    for own in owned:
        for key in own.kinds:
            numbers.setdefault(key, len(numbers))
    kind = _join([np.array([numbers[key] for key in own.kinds], np.int64)[own.kind] for own in owned])
    end = _join([own.end_ns for own in owned])
    begin = end - _join([own.waiting_ns for own in owned])
    call, count = _number_calls(
        kind, *(_join([getattr(own, name) for own in owned]) for name in ("counted_in", "number"))
    )
    found = Matched(
        ranks=tuple(calls),
        kinds=tuple(numbers),
        row_of=_join([np.full(len(own.kind), row, np.int64) for row, own in enumerate(owned)]),
        call=call,
        kind=kind,
        step=_join([own.step for own in owned]),
        begin_ns=begin,
        end_ns=end,
        arrival_ns=begin,
        left_ns=end,
        is_clocked=np.full(len(call), one_clock),
        duration_ns=_join([own.duration_ns for own in owned]),
        bytes=_join([own.bytes for own in owned]),
        group_size=_join([own.group_size for own in owned]),
        count=count,
    )
    meets = _join([own.meets & ~_is_passed_by(own) for own in owned]).astype(np.bool_)
    return _put_on_one_clock(found, meets, one_clock)


def _is_passed_by(own: Calls) -> Mask:
    """Return a mask of the calls that did not delay the training, because it hardly waited for the end of the call."""
    return is_awaited_later(own.waiting_ns, own.duration_ns) & (own.waiting_ns < LEAST_HELD_NS)


def is_awaited_later(waiting_ns: Ints, duration_ns: Ints) -> Mask:
    """Return a mask of asynchronous calls: the training continued after the start, and waited for only a small part of
    the call.
    """
    return waiting_ns < AT_ONCE_FRAC * duration_ns


def _number_calls(kind: Ints, step: Ints, number: Ints) -> tuple[Ints, int]:
    """Return a call number for each row, and the number of calls. Rows get the same number if they agree in all three
    arguments.

    The numbers are made in two rounds, because the product of three ranges may overflow.
    """
    if not len(kind):
        return kind, 0
    call = kind
    for part in (step, number):
        known, place = np.unique(part, return_inverse=True)
        _, call = np.unique(call * len(known) + place, return_inverse=True)
    return call.astype(np.int64), int(call.max()) + 1


def _put_on_one_clock(found: Matched, meets: Mask, one_clock: bool) -> Matched:
    group_of = number_groups(found.kinds, found.kind)
    arrival, left, clocked = found.arrival_ns.copy(), found.left_ns.copy(), found.is_clocked.copy()
    meetings: list[Meetings] = []
    residuals: list[float] = []
    apart: dict[int, int] = {}
    strangers: Strangers | None = None
    alone = np.zeros(len(found.call), np.bool_)
    commons = [
        _find_common(found, np.flatnonzero((group_of == group) & meets))
        for group in range(int(group_of.max(initial=-1)) + 1)
    ]
    is_one_job = _meet_in_most(found, commons)
    for group, common in enumerate(commons):
        if common is None:
            continue
        mine = group_of == group
        if not is_one_job and (differing := _find_apart(found, common)):
            apart |= differing
            alone |= mine
            continue
        alignment = align_clocks(common.end_ns)
        unlike = _find_strangers(found, common, alignment)
        if unlike is not None and not (unlike.by == "times" and one_clock and _leave_within_a_step(common)):
            strangers = strangers or unlike
            alone |= mine
            continue
        alignment = _choose_alignment(alignment, common, one_clock)
        meetings.append(replace(common, alignment=alignment))
        if alignment is None:
            continue
        residuals.append(alignment.residual_ns)
        clocked[mine] = np.isin(found.row_of[mine], common.rows)
        for place, row in enumerate(common.rows.tolist()):
            own = found.find_rows(row, mine)
            arrival[own], left[own] = (alignment.align(place, times[own]) for times in (arrival, left))
    clock: Clock = "aligned" if residuals else "one" if one_clock else "unknown"
    return replace(
        _part_calls(found, meetings, alone) if apart or strangers else replace(found, meetings=tuple(meetings)),
        arrival_ns=arrival,
        left_ns=left,
        is_clocked=clocked,
        clock=clock,
        clock_residual_ns=max(residuals, default=0.0),
        apart_ns=apart,
        strangers=strangers,
    )


def _leave_within_a_step(common: Meetings) -> bool:
    """Return whether the ranks of one host leave their common calls less than a step apart, as ranks of one job do.

    Ranks of a second job begin some steps later. Some calls of one job end apart as well, but by less than a step:
    asynchronous calls, calls of `Join`, and calls of several groups under one name.
    """
    apart = float(np.median(np.abs(common.end_ns - common.end_ns[:1]), axis=1).max())
    steps = len(np.unique(common.step))
    return steps > 1 and apart < float(common.end_ns[0, -1] - common.end_ns[0, 0]) / (steps - 1)


def _meet_in_most(found: Matched, commons: Sequence[Meetings | None]) -> bool:
    """Return whether the ranks met in the group with the most meetings, which is better evidence than other groups."""
    known = [common for common in commons if common is not None]
    largest = max(known, key=lambda common: common.end_ns.shape[1], default=None)
    return largest is not None and not _find_apart(found, largest)


def _find_apart(found: Matched, common: Meetings) -> dict[int, int]:
    """Return for each rank the time in ns from its first to its last meeting; empty if these times are nearly equal."""
    length = common.end_ns[:, -1] - common.end_ns[:, 0]
    least = max(APART_NS, APART_FRAC * float(np.median(length)))
    if common.end_ns.shape[1] < LEAST_CALLS or np.ptp(length) <= least:
        return {}
    return {found.ranks[row]: span for row, span in zip(common.rows.tolist(), length.tolist(), strict=True)}


def _part_calls(found: Matched, meetings: Sequence[Meetings], alone: Mask) -> Matched:
    """Return the calls. Each row in `alone` gets a new call number, as if no other rank made the call of this row."""
    numbers = np.where(alone, found.count + np.arange(len(found.call)), found.call)
    known, call = np.unique(numbers, return_inverse=True)
    moved = tuple(replace(group, call=np.searchsorted(known, group.call)) for group in meetings)
    return replace(found, call=call.astype(np.int64), count=len(known), meetings=moved)


def _choose_alignment(alignment: Alignment | None, common: Meetings, one_clock: bool) -> Alignment | None:
    """Return the alignment of a group's clocks; None if they share a clock, or if their calls do not end together."""
    if alignment is None:
        return None
    if not one_clock:
        usual = float(np.median(common.held_ns))
        return alignment if alignment.residual_ns <= max(TOGETHER_NS, usual) else None
    apart = measure_spread(common.end_ns, 50)
    return alignment if apart > TOGETHER_NS and alignment.residual_ns < ALIGNED_FRAC * apart else None


def _find_common(found: Matched, rows: Ints) -> Meetings | None:
    """Return the meetings that all ranks of a group have; None if no two ranks share a meeting.

    A rank with few meetings ended early, or recorded other steps than the rest of the group. It is left out, unless
    enough meetings of all ranks remain.
    """
    owners, owner = np.unique(found.row_of[rows], return_inverse=True)
    known, place = np.unique(found.call[rows], return_inverse=True)
    if len(owners) < 2:
        return None
    at = np.full((len(owners), len(known)), -1, np.int64)
    at[owner, place] = rows
    have = at >= 0
    kept = np.ones(len(owners), np.bool_)
    if have.all(axis=0).sum() < ENOUGH_CALLS:
        kept = find_whole(have.sum(axis=1))
    shared = have[kept].all(axis=0)
    if kept.sum() < 2 or not shared.any():
        return None
    at = at[kept][:, shared]
    at = at[:, np.argsort(found.end_ns[at[0]], kind="stable")]
    return Meetings(owners[kept], found.call[at[0]], found.step[at[0]], found.begin_ns[at], found.end_ns[at], at)


def _join(arrays: Sequence[Any]) -> Any:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)


_EQUAL = ("allreduce", "allgather", "reducescatter")
"""Collectives with equal bytes on every rank. An all-to-all may be uneven."""


def _find_strangers(found: Matched, common: Meetings, alignment: Alignment | None) -> Strangers | None:
    """Return two sets of ranks that did not meet each other, the smaller set first; None if all ranks met."""
    if common.end_ns.shape[1] < LEAST_MEETINGS:
        return None
    ranks = tuple(found.ranks[row] for row in common.rows.tolist())
    if (unlike := _differ(found, common.places)).any():
        return _part(ranks, unlike, "bytes")
    begin_ns = common.end_ns - found.duration_ns[common.places]
    if alignment is not None and (unlike := _miss(begin_ns, common.end_ns, alignment)).any():
        return _part(ranks, unlike, "times")
    return None


def _differ(found: Matched, places: Ints) -> Mask:
    """Return a mask of the ranks whose collectives have other sizes than those of the first rank."""
    equal = np.array([any(known in name.lower().replace("_", "") for known in _EQUAL) for _, name in found.kinds])
    sizes = found.bytes[places]
    sizes = sizes[:, equal[found.kind[places[0]]] & (sizes > 0).all(axis=0)]
    if sizes.shape[1] < LEAST_MEETINGS:
        return np.zeros(len(sizes), np.bool_)
    unlike: Mask = (sizes != sizes[:1]).mean(axis=1) > MOST_FRAC
    return unlike


def _miss(begin_ns: Ints, end_ns: Ints, alignment: Alignment) -> Mask:
    """Return a mask of the ranks that do not meet the first rank.

    Such ranks are outside of collectives while the first rank is inside, or they leave collectives at other times.
    """
    begin, end = (
        np.stack([alignment.align(row, times[row]) for row in range(len(times))]) for times in (begin_ns, end_ns)
    )
    gap = np.maximum(begin - end[:1], begin[:1] - end)
    found: Mask = (gap > TOGETHER_NS).mean(axis=1) > MISSED_FRAC
    return found if found.any() else _leave_apart(end)


def _leave_apart(end_ns: Ints) -> Mask:
    """Return a mask of the ranks that leave collectives at other times than the first rank. It is empty unless each of
    the two sets of ranks leaves together.
    """
    apart = np.median(np.abs(end_ns - end_ns[:1]), axis=1)
    found: Mask = apart > TOGETHER_NS
    parts = [end_ns[chosen] for chosen in (found, ~found)]
    if min(len(part) for part in parts) < 2:
        return np.zeros(len(end_ns), np.bool_)
    within = max(float(np.percentile(np.abs(part - part[:1]), 95)) for part in parts)
    return found if apart[found].min() > FAR_RATIO * within else found & False


def _part(ranks: tuple[int, ...], unlike: Mask, by: Literal["bytes", "times"]) -> Strangers:
    parts = [tuple(rank for rank, is_it in zip(ranks, chosen, strict=True) if is_it) for chosen in (unlike, ~unlike)]
    fewer, more = sorted(parts, key=len)
    return Strangers(fewer, more, by)
