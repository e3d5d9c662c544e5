"""Find the ranks that hold up a job: ranks that have not entered a collective in which other ranks of its group wait.

A rank that is missing from one collective may itself wait in a collective of another group. Such a rank holds others
up, but is not to blame. So only missing ranks that wait nowhere are named, if there are any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from collector.format.schema.wording import format_ranks_named
from collector.hangs.positions import IN_BACKWARD, Group, RankPosition, list_ranks

_BACKWARD = "backward"
_ALL = Group("", is_whole=True)


@dataclass(frozen=True)
class Stop:
    """The `waiting` ranks wait for the `missing` ranks, which never entered collective `number`.

    `number` counts a group's collectives from 1; `name` and `bytes` describe this collective. Unless `is_begun`, they
    are guessed from the step before. `number` is None if the ranks wait at the end of a backward, in a reduction that
    no visible call made. `group` is None if the job has only one group; then all collectives are counted together.
    """

    number: int | None
    name: str
    bytes: int | None
    waiting: tuple[int, ...]
    missing: tuple[RankPosition, ...]
    is_begun: bool = False
    ahead: int | None = None
    """Number of collectives that the waiting ranks have called, if these numbers alone show which ranks are behind."""
    group: Group | None = None
    elsewhere: int = 0
    """Number of ranks that wait in collectives of other groups."""

    @property
    def least(self) -> int:
        one = self.missing[0]
        return one.count(self.group) if self.group is not None else one.ended


@dataclass(frozen=True)
class _Wait:
    """Ranks that wait for missing ranks in collective `number` of a group. If `number` is None, they wait in a
    backward.
    """

    group: Group
    number: int | None
    waiting: tuple[RankPosition, ...]
    missing: tuple[RankPosition, ...]


def explain_positions(positions: Sequence[RankPosition]) -> Stop | None:
    """Return which ranks wait for which. None if no rank waits for another, or if a rank of unknown state may be to
    blame.
    """
    positions = _tell_groups(positions)
    waits = [*_list_waits(positions), *_list_backwards(positions)]
    chosen = _choose(waits, positions)
    if chosen is None:
        return None
    one = max(chosen.waiting, key=lambda position: position.is_begun)
    inside = {position.rank for wait in waits for position in wait.waiting} - {
        position.rank for position in chosen.waiting
    }
    is_seen = chosen.number is not None
    return Stop(
        number=chosen.number,
        name=one.name if is_seen else "",
        bytes=one.bytes if is_seen else None,
        waiting=list_ranks(chosen.waiting),
        missing=chosen.missing,
        is_begun=is_seen and one.is_begun,
        group=_find_told_group(chosen.group, positions),
        elsewhere=len(inside - {position.rank for position in chosen.missing}),
    )


def explain_counts(positions: Sequence[RankPosition]) -> Stop | None:
    """Return a stop whose `missing` ranks called fewer collectives of a group than other ranks; None without such a
    group.

    At most half of the group may be behind. A rank that is ahead in another group is never among `missing`. NCCL's
    calls return at once, so a rank that waits for a collective is in another call, such as a copy to the host.
    """
    positions = _tell_groups(positions)
    found = []
    for group in _list_groups(positions):
        members = [position for position in positions if position.belongs_to(group)]
        if (stop := _find_behind(members, [position.count(group) for position in members])) is not None:
            found.append((group, stop))
    ahead = {rank for _, stop in found for rank in stop.waiting}
    for group, stop in found:
        # A rank that is ahead of others in one group waits for them in another group.
        if to_blame := tuple(position for position in stop.missing if position.rank not in ahead):
            others = len(ahead - set(stop.waiting))
            return Stop(
                None,
                "",
                None,
                stop.waiting,
                to_blame,
                ahead=stop.ahead,
                group=_find_told_group(group, positions),
                elsewhere=others,
            )
    return None


def name_group(stop: Stop) -> str:
    """Return the end of a phrase such as ` of group dp (ranks 1, 3)`, "" if the job has only one group."""
    if stop.group is None:
        return ""
    members = f" ({format_ranks_named(stop.group.ranks)})" if stop.group.ranks else ""
    return f" of group {stop.group.title}{members}"


def _tell_groups(positions: Sequence[RankPosition]) -> Sequence[RankPosition]:
    """Return the positions with groups. If no position has groups, each gets the same one, in which all collectives
    count.
    """
    if any(position.counts for position in positions):
        return positions
    reduces = any(IN_BACKWARD in position.name for position in positions)
    return [
        replace(position, counts=((_ALL, position.ended),), group="", backward_group="" if reduces else None)
        for position in positions
    ]


def _list_waits(positions: Sequence[RankPosition]) -> list[_Wait]:
    inside: dict[Group, list[RankPosition]] = {}
    for position in positions:
        group = position.find_group(position.group) or (position.counts[0][0] if len(position.counts) == 1 else None)
        if position.in_collective and group is not None:
            inside.setdefault(group, []).append(position)
    found = []
    for group, own in inside.items():
        counts = Counter(position.count(group) for position in own)
        number = max(counts, key=lambda count: (counts[count], -count))
        waiting = tuple(position for position in own if position.count(group) == number)
        missing = tuple(
            position
            for position in positions
            if position not in own and position.belongs_to(group) and position.count(group) <= number
        )
        found.append(_Wait(group, number + 1, waiting, missing))
    return found


def _list_backwards(positions: Sequence[RankPosition]) -> list[_Wait]:
    groups = dict.fromkeys(
        group for position in positions if (group := position.find_group(position.backward_group)) is not None
    )
    found = (_find_in_backward(group, positions) for group in groups)
    return [wait for wait in found if wait is not None]


def _find_in_backward(group: Group, positions: Sequence[RankPosition]) -> _Wait | None:
    members = [position for position in positions if position.belongs_to(group)]
    step = max((position.step for position in members), default=0)
    waiting = [position for position in members if position.phase == _BACKWARD and position.step == step]
    missing = [position for position in members if position not in waiting]
    return _Wait(group, None, tuple(waiting), tuple(missing)) if waiting and missing else None


def _choose(waits: Sequence[_Wait], positions: Sequence[RankPosition]) -> _Wait | None:
    """Return the wait that causes the other waits, None without one. Its `missing` ranks are those that wait nowhere
    themselves.

    If every missing rank waits somewhere, return a wait with all its missing ranks. Return None then if the state of a
    rank is unknown, because this rank may be the cause.
    """
    held = {position.rank for wait in waits for position in wait.waiting}
    held |= {position.rank for position in positions if position.still is not None and position.still.waits}
    free = [
        _Wait(wait.group, wait.number, wait.waiting, left)
        for wait in waits
        if (left := tuple(position for position in wait.missing if position.rank not in held))
    ]
    unheard = {rank for wait in waits for rank in wait.group.ranks} - {position.rank for position in positions}
    # If all missing ranks wait themselves, a rank that did not report may be the cause.
    known = free or ([] if unheard else [wait for wait in waits if wait.missing])
    return max(known, key=_rate, default=None)


def _rate(wait: _Wait) -> tuple[bool, bool, int, int]:
    """Return the priority of a wait as values that are compared in order; the wait with the highest values is chosen.

    The values are: whether a missing rank's next collective is in the wait's group; whether the collective is known;
    the longest time that a rank has waited; the number of waiting ranks.
    """
    is_next = any(position.group == wait.group.name for position in wait.missing)
    return is_next, wait.number is not None, -min(position.has_begun_ns for position in wait.waiting), len(wait.waiting)


def _find_behind(positions: Sequence[RankPosition], counts: Sequence[int]) -> Stop | None:
    most, least = max(counts, default=0), min(counts, default=0)
    missing = tuple(position for position, count in zip(positions, counts, strict=True) if count == least)
    ahead = [position for position, count in zip(positions, counts, strict=True) if count == most]
    if most == least or len(missing) > len(positions) // 2:
        return None
    return Stop(None, "", None, list_ranks(ahead), missing, ahead=most)


def _list_groups(positions: Sequence[RankPosition]) -> list[Group]:
    return list(dict.fromkeys(group for position in positions for group, _ in position.counts))


def _find_told_group(group: Group, positions: Sequence[RankPosition]) -> Group | None:
    return group if len(_list_groups(positions)) > 1 else None
