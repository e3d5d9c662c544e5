"""The rank that comes late to the meetings of the ranks, and its lateness, measured without a common clock.

The ranks of a group leave a meeting together. Each rank then works until the next meeting, and this work, measured on
the rank's own clock, decides the order of arrival: own work = begin of this meeting - end of the previous meeting.
Lateness is own work minus the median over the ranks.

The sum of own work and waiting should be equal on all ranks. The difference between ranks is the residual, which is the
error of a single lateness. It shows how far apart the ranks leave a meeting, which depends on the library and the
scheduling of the hosts. The error does not accumulate over several meetings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from collector.format.intervals import Floats, Ints, Mask
from profiler_server.analysis.ranks.clocks import measure_spread
from profiler_server.analysis.ranks.matching import Matched, Meetings
from profiler_server.facts.job import Source


@dataclass(frozen=True, eq=False)
class Lateness:
    """The lateness of the ranks (rows, indexes in `ranks`) at their meetings.

    `late_ns` is (ranks, meetings), relative to the median of the ranks, and NaN for ranks outside the meeting's group.
    `step` is the step of each meeting. `residual_ns` are the 50th and the 95th percentile of a distance: from a rank's
    own work plus waiting to the median of this sum over the ranks. `partly` are steps in which some work is unknown:
    the work before a group's very first meeting. `group` is the number of each meeting's process group, None for a
    single group.

    Extra work of a rank makes it late in each of its groups. So sums over groups do not add the groups: per step they
    use the group with the largest value.
    """

    ranks: tuple[int, ...]
    source: Source
    step: Ints
    late_ns: Floats
    residual_ns: tuple[float, float]
    partly: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    group: Ints | None = None

    @property
    def compared(self) -> frozenset[int]:
        """Return the ranks that share a meeting with other ranks."""
        return frozenset(rank for rank, late in zip(self.ranks, self.late_ns, strict=True) if not np.isnan(late).all())

    @property
    def last(self) -> Ints:
        """Return the row of the rank that comes last to each meeting. Of equally late ranks, the first counts."""
        found: Ints = np.argmax(np.nan_to_num(self.late_ns, nan=-np.inf), axis=0)
        return found

    @property
    def margin_ns(self) -> Floats:
        """Return the time in ns from the second-last to the last rank at each meeting. This is the most that the
        meeting gains if only the last rank comes earlier.
        """
        known = np.sort(np.nan_to_num(self.late_ns, nan=-np.inf), axis=0)
        found: Floats = known[-1] - known[-2]
        return found

    @property
    def waited_ns(self) -> Floats:
        """Return the wait for the last rank at each meeting in ns, averaged over the ranks of the meeting."""
        found: Floats = np.nanmax(self.late_ns, axis=0) - np.nanmean(self.late_ns, axis=0)
        return found

    def choose(self, numbers: set[int]) -> Lateness:
        """Return the lateness of the ranks `numbers` at the meetings that at least two of them share."""
        known = np.isfinite(self.late_ns)
        rows = np.array([number in numbers for number in self.ranks], np.bool_) & known.any(axis=1)
        kept = known[rows].sum(axis=0) > 1
        ranks = tuple(number for number, row in zip(self.ranks, rows, strict=True) if row)
        return replace(self._keep(kept), ranks=ranks, late_ns=self.late_ns[rows][:, kept])

    def _keep(self, kept: Mask) -> Lateness:
        group = self.group[kept] if self.group is not None else None
        return replace(self, step=self.step[kept], late_ns=self.late_ns[:, kept], group=group)

    def drop(self, steps: Sequence[int]) -> Lateness:
        return self._keep(~np.isin(self.step, np.array(steps, np.int64)))

    def drop_unusual(self, first: int, unusual: Ints) -> Lateness:
        """Return the lateness at the meetings from step `first` on, without the meetings in `unusual` steps.

        Steps in which some work is unknown are dropped, too, if other steps remain. Meetings outside of steps stay only
        if no meeting is in a step.
        """
        kept = (self.step >= first) if (self.step >= 0).any() else np.ones(len(self.step), np.bool_)
        kept &= ~np.isin(self.step, unusual)
        whole = kept & ~np.isin(self.step, self.partly)
        return self._keep(whole if whole.any() and (self.step >= 0).any() else kept)

    def sum_by_step(self) -> tuple[Ints, Floats]:
        """Return the steps, and the total lateness of each rank at the meetings of each step: (ranks, steps).

        With several groups, only the group in which the rank is latest in the step counts.
        """
        steps, place = np.unique(self.step, return_inverse=True)
        late = np.full((len(steps), len(self.ranks)), -np.inf)
        for chosen in self._list_groups():
            own = self.late_ns[:, chosen]
            members = np.flatnonzero(~np.isnan(own).all(axis=1))
            found = np.zeros((len(steps), len(members)))
            np.add.at(found, place[chosen], np.nan_to_num(own[members]).T)
            there = np.unique(place[chosen])
            cells = np.ix_(there, members)
            late[cells] = np.maximum(late[cells], found[there])
        return steps, np.where(np.isfinite(late), late, 0.0).T

    def sum_most(self, value: Floats) -> float:
        """Return the sum of `value` (one per meeting). In each step, only the group with the largest sum counts."""
        steps, place = np.unique(self.step, return_inverse=True)
        most = np.zeros(len(steps))
        for chosen in self._list_groups():
            most = np.maximum(most, np.bincount(place[chosen], weights=value[chosen], minlength=len(steps)))
        return float(most.sum())

    def sum_blame(self) -> Floats:
        """Return for each rank the time in ns by which it came after the second-last rank, summed over the meetings at
        which it came last.
        """
        steps, place = np.unique(self.step, return_inverse=True)
        group = self.group if self.group is not None else np.zeros(len(place), np.int64)
        cell = self.last.astype(np.int64) * len(steps) + place
        keys, meeting = np.unique(np.stack([cell, group]), axis=1, return_inverse=True)
        most = np.zeros(len(self.ranks) * len(steps))
        np.maximum.at(most, keys[0], np.bincount(meeting.ravel(), weights=self.margin_ns))
        found: Floats = most.reshape(len(self.ranks), len(steps)).sum(axis=1)
        return found

    def sum_gain(self, slow: Sequence[int]) -> float:
        """Return by how many ns the meetings would begin earlier without the ranks in rows `slow`, summed."""
        late = np.nan_to_num(self.late_ns, nan=-np.inf)
        rest = late[~np.isin(self.ranks, slow)].max(axis=0, initial=-np.inf)
        # A meeting of only these ranks delays no other rank.
        return self.sum_most(np.where(np.isfinite(rest), late.max(axis=0) - rest, 0.0))

    def _list_groups(self) -> list[Ints]:
        if self.group is None:
            return [np.arange(len(self.step))]
        order = np.argsort(self.group, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(self.group[order])) + 1)


def measure_calls(matched: Matched) -> Lateness | None:
    """Return the lateness of the ranks at their common collectives; None if no two ranks share two meetings."""
    groups = [group for group in matched.meetings if group.end_ns.shape[1] > 1]
    if not groups:
        return None
    late = np.concatenate([_measure_group(matched, group) for group in groups], axis=1)
    gaps = [group.end_ns[:, 1:] - group.end_ns[:, :-1] for group in groups]
    step = np.concatenate([group.step[1:] for group in groups])
    partly = np.unique([group.step[0] for group in groups])
    number = np.repeat(np.arange(len(groups)), [len(group.step) - 1 for group in groups])
    return Lateness(matched.ranks, "collectives", step, late, (_pool(gaps, 50), _pool(gaps, 95)), partly, number)


def measure_steps(ranks: tuple[int, ...], step: Ints, own_ns: Floats, held_ns: Floats) -> Lateness:
    """Return the lateness, with each step as one meeting.

    `own_ns` is work before the meeting, `held_ns` the wait in the meeting; both are (ranks, steps).
    """
    late = own_ns - np.median(own_ns, axis=0, keepdims=True)
    whole = own_ns + held_ns
    return Lateness(ranks, "steps", step, late, (measure_spread(whole, 50), measure_spread(whole, 95)))


def _measure_group(matched: Matched, group: Meetings) -> Floats:
    # A call that began before the previous call had ended keeps no rank waiting until that end.
    own = np.maximum(group.begin_ns[:, 1:] - group.end_ns[:, :-1], 0).astype(np.float64)
    if len(matched.meetings) > 1:
        own -= _sum_elsewhere(matched, group)
    late = np.full((len(matched.ranks), own.shape[1]), np.nan)
    # Of two ranks that also have other groups, the earlier rank is on time: with a median, it would be half the
    # difference early.
    usual = own.min(axis=0) if len(own) < 3 and len(matched.meetings) > 1 else np.median(own, axis=0)
    late[group.rows] = own - usual
    return late


def _sum_elsewhere(matched: Matched, group: Meetings) -> Floats:
    """Return each rank's wait in other groups between two meetings of this group, in ns. This wait is not own work.

    Calls that only some ranks have recorded are left out, because the same wait is unknown for the other ranks.
    """
    others = np.concatenate([other.call for other in matched.meetings if other is not group])
    is_other = np.isin(matched.call, others)
    found = np.empty((len(group.rows), group.end_ns.shape[1] - 1))
    for place, row in enumerate(group.rows.tolist()):
        mine = matched.find_rows(row, is_other)
        order = mine[np.argsort(matched.end_ns[mine], kind="stable")]
        ends = matched.end_ns[order]
        total = np.concatenate([[0], np.cumsum(matched.waiting_ns[order])])
        until = np.searchsorted(ends, group.begin_ns[place, 1:], side="right")
        since = np.searchsorted(ends, group.end_ns[place, :-1], side="right")
        found[place] = total[np.maximum(until, since)] - total[since]
    return found


def _pool(gaps: Sequence[Ints], percent: float) -> float:
    apart = [np.abs(gap - np.median(gap, axis=0, keepdims=True)).ravel() for gap in gaps]
    return float(np.percentile(np.concatenate(apart), percent))
