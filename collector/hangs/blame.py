"""Who waits for whom: which ranks wait in a collective of a process group that others of the group have not entered.

A rank that is missing from one collective may itself wait in one of another group: it holds others up, but is not to
blame. So the ranks that are named are those that wait nowhere, as long as there are any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from collector.format.schema.wording import format_ranks_named
from collector.hangs.positions import Group, Place

_BACKWARD = "backward"
_IN_BACKWARD = "DDP"
"""In the name of a reduction that the backward waits for."""


@dataclass(frozen=True)
class Stop:
    """`missing` are ranks that the `waiting` ones wait for. `number` is the collective that those never entered, counted
    from 1; None where they wait at the end of a backward, in a reduction that is not seen by itself.

    `group` is None where the job has one group only; then all collectives are counted together.
    """

    number: int | None
    name: str
    bytes: int | None
    waiting: tuple[int, ...]
    missing: tuple[Place, ...]
    is_begun: bool = False
    ahead: int | None = None
    """How many collectives the waiting ranks have called, where only the numbers tell who is behind."""
    group: Group | None = None
    elsewhere: int = 0
    """Ranks that wait in collectives of other groups."""

    @property
    def least(self) -> int:
        """How many collectives the ranks that are behind have called."""
        one = self.missing[0]
        return one.count(self.group) if self.group is not None else one.ended


@dataclass(frozen=True)
class _Wait:
    """Ranks that wait in one collective of a group, or (no `number`) in a backward, for some that are not there."""

    group: Group
    number: int | None
    waiting: tuple[Place, ...]
    missing: tuple[Place, ...]


def explain_places(places: Sequence[Place]) -> Stop | None:
    """Return which ranks wait for which, None where none waits in a collective that another did not enter."""
    if not any(place.counts for place in places):
        return _explain_totals(places)
    waits = [*_list_waits(places), *_list_backwards(places)]
    chosen = _choose(waits, places)
    if chosen is None:
        return None
    one = max(chosen.waiting, key=lambda place: place.is_begun)
    inside = {place.rank for wait in waits for place in wait.waiting} - {place.rank for place in chosen.waiting}
    is_seen = chosen.number is not None
    return Stop(
        number=chosen.number,
        name=one.name if is_seen else "",
        bytes=one.bytes if is_seen else None,
        waiting=_numbers(chosen.waiting),
        missing=chosen.missing,
        is_begun=is_seen and one.is_begun,
        group=_tell_group(chosen.group, places),
        elsewhere=len(inside - {place.rank for place in chosen.missing}),
    )


def explain_counts(places: Sequence[Place]) -> Stop | None:
    """Return the ranks that called fewer collectives than the most.

    NCCL's calls return at once: whoever waits for one stands in another call, such as a copy to the host.
    """
    groups = _list_groups(places)
    if not groups:
        return _find_behind(places, [place.ended for place in places])
    found = []
    for group in groups:
        members = [place for place in places if place.belongs_to(group)]
        if (stop := _find_behind(members, [place.count(group) for place in members])) is not None:
            found.append((group, stop))
    ahead = {rank for _, stop in found for rank in stop.waiting}
    for group, stop in found:
        # A rank that is ahead of others in one group is held up by them in another.
        if to_blame := tuple(place for place in stop.missing if place.rank not in ahead):
            others = len(ahead - set(stop.waiting))
            return Stop(
                None,
                "",
                None,
                stop.waiting,
                to_blame,
                ahead=stop.ahead,
                group=_tell_group(group, places),
                elsewhere=others,
            )
    return None


def name_group(stop: Stop) -> str:
    """Return ` of group dp (ranks 1, 3)`, "" where the job has one group only."""
    if stop.group is None:
        return ""
    members = f" ({format_ranks_named(stop.group.ranks)})" if stop.group.ranks else ""
    return f" of group {stop.group.title}{members}"


def _explain_totals(places: Sequence[Place]) -> Stop | None:
    """Explain places that tell no groups: all collectives are counted together."""
    inside = [place for place in places if place.in_collective]
    if inside:
        number = Counter(place.ended for place in inside).most_common(1)[0][0]
        waiting = [place for place in inside if place.ended == number]
        missing = [place for place in places if not place.in_collective and place.ended <= number]
        one = max(waiting, key=lambda place: place.is_begun)
        if not missing:
            return None
        return Stop(number + 1, one.name, one.bytes, _numbers(waiting), tuple(missing), one.is_begun)
    if not any(_IN_BACKWARD in place.name for place in places):
        return None
    found = _find_in_backward(Group("", is_whole=True), places)
    return Stop(None, "", None, _numbers(found.waiting), found.missing) if found is not None else None


def _list_waits(places: Sequence[Place]) -> list[_Wait]:
    inside: dict[Group, list[Place]] = {}
    for place in places:
        group = place.find_group(place.group) or (place.counts[0][0] if len(place.counts) == 1 else None)
        if place.in_collective and group is not None:
            inside.setdefault(group, []).append(place)
    found = []
    for group, own in inside.items():
        counts = Counter(place.count(group) for place in own)
        number = max(counts, key=lambda count: (counts[count], -count))
        waiting = tuple(place for place in own if place.count(group) == number)
        missing = tuple(
            place for place in places if place not in own and place.belongs_to(group) and place.count(group) <= number
        )
        found.append(_Wait(group, number + 1, waiting, missing))
    return found


def _list_backwards(places: Sequence[Place]) -> list[_Wait]:
    groups = dict.fromkeys(group for place in places if (group := place.find_group(place.backward_group)) is not None)
    found = (_find_in_backward(group, places) for group in groups)
    return [wait for wait in found if wait is not None]


def _find_in_backward(group: Group, places: Sequence[Place]) -> _Wait | None:
    members = [place for place in places if place.belongs_to(group)]
    step = max((place.step for place in members), default=0)
    waiting = [place for place in members if place.phase == _BACKWARD and place.step == step]
    missing = [place for place in members if place not in waiting]
    return _Wait(group, None, tuple(waiting), tuple(missing)) if waiting and missing else None


def _choose(waits: Sequence[_Wait], places: Sequence[Place]) -> _Wait | None:
    """Return the wait that the others follow from, with only those ranks missing that wait nowhere themselves."""
    held = {place.rank for wait in waits for place in wait.waiting}
    held |= {place.rank for place in places if place.still is not None and place.still.waits}
    free = [
        _Wait(wait.group, wait.number, wait.waiting, left)
        for wait in waits
        if (left := tuple(place for place in wait.missing if place.rank not in held))
    ]
    unheard = {rank for wait in waits for rank in wait.group.ranks} - {place.rank for place in places}
    # Where all that are missing wait themselves, a rank that was not heard may be the one.
    known = free or ([] if unheard else [wait for wait in waits if wait.missing])
    return max(known, key=_rate, default=None)


def _rate(wait: _Wait) -> tuple[bool, bool, int, int]:
    """Of several groups that wait for a rank, it is missing first from the one that it calls next, and that waits longest."""
    is_next = any(place.group == wait.group.name for place in wait.missing)
    return is_next, wait.number is not None, -min(place.has_begun_ns for place in wait.waiting), len(wait.waiting)


def _find_behind(places: Sequence[Place], counts: Sequence[int]) -> Stop | None:
    most, least = max(counts, default=0), min(counts, default=0)
    missing = tuple(place for place, count in zip(places, counts, strict=True) if count == least)
    ahead = [place for place, count in zip(places, counts, strict=True) if count == most]
    if most == least or len(missing) > len(places) // 2:
        return None
    return Stop(None, "", None, _numbers(ahead), missing, ahead=most)


def _list_groups(places: Sequence[Place]) -> list[Group]:
    return list(dict.fromkeys(group for place in places for group, _ in place.counts))


def _tell_group(group: Group, places: Sequence[Place]) -> Group | None:
    return group if len(_list_groups(places)) > 1 else None


def _numbers(places: Sequence[Place]) -> tuple[int, ...]:
    return tuple(place.rank for place in places)
