"""Who comes late to the meetings of the ranks, and by how much, without a common clock.

The ranks of a group leave one meeting together. So the order in which they come to the next one follows from what each
works in between, on its own clock: own work = begin of this meeting - end of the one before. Lateness is that less the
median over the ranks. Own work and waiting together must be as long on every rank; by how much they differ is the
residual, and a single lateness is not known any better than that: it is how far apart the ranks leave a meeting, which
the library and the scheduling of the hosts decide. Over several meetings it does not add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from collector.format.intervals import Floats, Ints
from profiler_server.analysis.ranks.clocks import measure_spread
from profiler_server.analysis.ranks.matching import Matched, Meetings

Source = Literal["collectives", "steps"]


@dataclass(frozen=True, eq=False)
class Lateness:
    """How late the ranks (rows, places in `ranks`) come to their meetings.

    `late_ns` is (ranks, meetings) against the median of the ranks; not a number for ranks of other groups. `step` is
    the step of each meeting. `residual_ns` are the 50th and the 95th percentile of how far own work and waiting of a
    rank lie from the median of the ranks. `partly` are steps of which a part is not known: the work before the very first
    meeting of a group.
    """

    ranks: tuple[int, ...]
    source: Source
    step: Ints
    late_ns: Floats
    residual_ns: tuple[float, float]
    partly: Ints = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def compared(self) -> frozenset[int]:
        """The ranks that have a meeting in common with others."""
        return frozenset(rank for rank, late in zip(self.ranks, self.late_ns, strict=True) if not np.isnan(late).all())

    @property
    def last(self) -> Ints:
        """The row of the rank that comes last to each meeting; of equals the first."""
        found: Ints = np.argmax(np.nan_to_num(self.late_ns, nan=-np.inf), axis=0)
        return found

    @property
    def margin_ns(self) -> Floats:
        """How much later the last rank comes than the second last: what is gained at most if it alone were earlier."""
        known = np.sort(np.nan_to_num(self.late_ns, nan=-np.inf), axis=0)
        found: Floats = known[-1] - known[-2]
        return found

    @property
    def waited_ns(self) -> Floats:
        """How long the ranks wait for the last one, in the mean over those of the meeting."""
        found: Floats = np.nanmax(self.late_ns, axis=0) - np.nanmean(self.late_ns, axis=0)
        return found

    def choose(self, numbers: set[int]) -> Lateness:
        """Return some of the ranks, without those that share no meeting, and the meetings of two of them or more."""
        known = np.isfinite(self.late_ns)
        rows = np.array([number in numbers for number in self.ranks], np.bool_) & known.any(axis=1)
        kept = known[rows].sum(axis=0) > 1
        ranks = tuple(number for number, row in zip(self.ranks, rows, strict=True) if row)
        return replace(self, ranks=ranks, step=self.step[kept], late_ns=self.late_ns[rows][:, kept])

    def drop_unusual(self, first: int, unusual: Ints) -> Lateness:
        """Return the meetings from a step on that neither a detailed window nor a standstill slowed down.

        Those outside of steps stay only where there are no others.
        """
        kept = (self.step >= first) if (self.step >= 0).any() else np.ones(len(self.step), np.bool_)
        kept &= ~np.isin(self.step, unusual)
        whole = kept & ~np.isin(self.step, self.partly)
        kept = whole if whole.any() and (self.step >= 0).any() else kept
        return replace(self, step=self.step[kept], late_ns=self.late_ns[:, kept])

    def sum_by_step(self) -> tuple[Ints, Floats]:
        """Return the steps, and how late each rank comes to all meetings of a step together: (ranks, steps)."""
        steps, place = np.unique(self.step, return_inverse=True)
        late = np.zeros((len(steps), len(self.ranks)))
        np.add.at(late, place, np.nan_to_num(self.late_ns).T)
        return steps, late.T


def measure_calls(matched: Matched) -> Lateness | None:
    """Return how late the ranks come to the collectives that they share, None without two of a group."""
    groups = [group for group in matched.meetings if group.end_ns.shape[1] > 1]
    if not groups:
        return None
    late = np.concatenate([_measure_group(matched, group) for group in groups], axis=1)
    gaps = [group.end_ns[:, 1:] - group.end_ns[:, :-1] for group in groups]
    step = np.concatenate([group.step[1:] for group in groups])
    partly = np.unique([group.step[0] for group in groups])
    return Lateness(matched.ranks, "collectives", step, late, (_pool(gaps, 50), _pool(gaps, 95)), partly)


def measure_steps(ranks: tuple[int, ...], step: Ints, own_ns: Floats, held_ns: Floats) -> Lateness:
    """Take each step as one meeting: `own_ns` is what a rank works before it, `held_ns` what it waits in it."""
    late = own_ns - np.median(own_ns, axis=0, keepdims=True)
    whole = own_ns + held_ns
    return Lateness(ranks, "steps", step, late, (measure_spread(whole, 50), measure_spread(whole, 95)))


def _measure_group(matched: Matched, group: Meetings) -> Floats:
    # A call that was begun before the one before it had ended keeps no rank waiting until then.
    own = np.maximum(group.begin_ns[:, 1:] - group.end_ns[:, :-1], 0).astype(np.float64)
    if len(matched.meetings) > 1:
        own -= _sum_elsewhere(matched, group)
    late = np.full((len(matched.ranks), own.shape[1]), np.nan)
    late[group.rows] = own - np.median(own, axis=0, keepdims=True)
    return late


def _sum_elsewhere(matched: Matched, group: Meetings) -> Floats:
    """Return how long each rank waited in meetings of other groups between two of this one: others are to blame.

    Calls that only some ranks have listed tell nothing: the same wait is unknown of the others.
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
