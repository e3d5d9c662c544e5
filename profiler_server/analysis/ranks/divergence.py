"""The first collective of a group at which the ranks of a job diverged, from the calls that each rank recorded.

All ranks of a group call the same collectives in the same order. Only calls that every rank records are compared. Three
kinds of calls are not compared: calls between two ranks, reductions of DDP (each rank reads them at its own pace), and
calls in steps of a detailed window.

If a rank lacks a call and recorded no later one, it has either left the call out or is only late. The progress of its
training decides. The rank has left the call out if it has ended, or if it has reached a later step or backward than the
other ranks had reached when they entered the call.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from collector.format.intervals import Ints, Mask
from collector.format.rank import RankRun
from collector.format.schema.errors import RunError
from collector.format.schema.reading import read_count
from collector.format.steps import is_kind, read_integers
from collector.hangs.positions import is_of_all, read_position
from profiler_server.analysis.ranks.ends import Collective, LeftOut, Meeting, Mismatch

_COLUMNS = ("step", "name", "group", "index", "bytes", "dtype", "held_ns", "start_ns")
_UNEVEN = ("gather", "scatter", "alltoall", "all_to_all")
"""Collectives in which ranks may contribute different sizes."""
_THIN_FROM = 50_000
"""Number of calls after which a rank records only the calls of some steps."""
_NO_STEP = -1

Place = tuple[float, int]
"""The progress of a training: its step, and the number of backwards begun in the step."""
_ENDED: Place = (float("inf"), 0)
_NEVER = 1 << 62
_BACKWARD = "backward"


@dataclass(frozen=True, eq=False)
class Calls:
    """The collectives of one rank in one group, in order. `kind` is an index in the list of kinds that all ranks share.

    `is_numbered` is true if `index` numbers exactly these calls. `is_thin` is true if the rank records only some steps.
    Calls in the steps `detailed` were recorded by a detailed window.
    """

    rank: int
    group: str
    step: Ints
    kind: Ints
    index: Ints
    start_ns: Ints
    is_numbered: bool
    detailed: frozenset[int]
    is_thin: bool

    def lists(self, step: int) -> bool:
        """Return whether the rank records all its calls in a step. True also if the rank has not reached the step."""
        if step > self.last_step:
            return True
        return step not in self.detailed and (not self.is_thin or bool((self.step == step).any()))

    @property
    def last_step(self) -> int:
        return int(self.step[-1]) if len(self.step) else 0

    def keep(self, steps: Sequence[int]) -> Calls:
        at = np.isin(self.step, steps)
        return replace(self, step=self.step[at], kind=self.kind[at], index=self.index[at], start_ns=self.start_ns[at])

    def find_usual(self, step: int) -> list[int]:
        """Return the kinds of the rank's calls in the last step before `step`."""
        before = self.step[self.step < step]
        return self.kind[self.step == before[-1]].tolist() if len(before) else []


class Course:
    """The progress of one rank's training in its last, unfinished step."""

    def __init__(self, rank: RankRun) -> None:
        self._rank = rank

    def find_place(self, at_ns: int = _NEVER) -> Place | None:
        """Return the progress at a time, by default at the end: the unfinished step, and the number of backwards begun
        in it.

        None if the time is before the unfinished step, or if no phase of that step was recorded.
        """
        ended_ns, last_step, backwards = self._tail
        if ended_ns is None or at_ns < ended_ns:
            return None
        return last_step + 1, int((backwards <= at_ns).sum())

    @property
    def last(self) -> Place | None:
        """Return the last progress; `_ENDED` for a rank that ended by itself without an error; None if unknown."""
        facts = self._rank.manifest.facts
        has_ended = self._rank.state == "complete" and not facts.get("ended_by") and not facts.get("process_end")
        return _ENDED if has_ended else self.find_place()

    def count(self, group: str) -> int | None:
        """Return the number of calls of a group that the rank had entered, recorded or not; None if unknown."""
        position = read_position(self._rank.rank, self._rank.manifest.facts.get("moment"))
        told = position.find_group(group) if position is not None else None
        if position is None or told is None:
            return None
        return position.count(told) + int(position.in_collective and position.group == group)

    @cached_property
    def _tail(self) -> tuple[int | None, int, Ints]:
        """Return three values: the end of the last finished step in ns, its number, and the start of each backward
        after it.

        The end is None if the rank finished no step, or if no phase was recorded after the step."""
        steps = self._rank.table("steps", ("kind", "step", "start_ns", "duration_ns"))
        steps = steps.filter(is_kind(steps, "train"))
        ends = read_integers(steps, "start_ns") + read_integers(steps, "duration_ns")
        phases = self._rank.table("phases", ("phase", "start_ns"))
        start_ns = read_integers(phases, "start_ns")
        ended_ns = int(ends.max(initial=0))
        if not len(ends) or not (start_ns >= ended_ns).any():
            return None, 0, start_ns
        begun: Mask = np.array([name == _BACKWARD for name in phases["phase"].cast(pa.string()).to_pylist()], np.bool_)
        backwards = start_ns[begun & (start_ns >= ended_ns)]
        moment = self._rank.manifest.facts.get("moment")
        if isinstance(moment, dict) and moment.get("phase") == _BACKWARD:  # not listed before it has ended
            backwards = np.union1d(backwards, [read_count(moment.get("since_ns")) or ended_ns])
        return ended_ns, int(read_integers(steps, "step").max()), backwards


def find_divergence(ranks: Sequence[RankRun], titles: Mapping[str, str]) -> LeftOut | Mismatch | None:
    """Return the first collective at which a job's ranks diverged. `titles` maps a group to its name for display.

    None without a divergence, or with too few recorded calls. Also None if the ranks differ from the first step on,
    because ranks may begin to record at different places.
    """
    kinds: dict[Collective, int] = {}
    groups: dict[str, list[Calls]] = {}
    courses = {rank.rank: Course(rank) for rank in ranks}
    for rank in ranks:
        with contextlib.suppress(RunError):  # its page says what is wrong with it
            for group, calls in _read_groups(rank, kinds).items():
                groups.setdefault(group, []).append(calls)
    names = list(kinds)
    found = [
        one
        for group, members in groups.items()
        if (one := _compare(members, courses, names, titles.get(group, group) if len(groups) > 1 else "")) is not None
    ]
    return min(found, key=lambda one: one.meeting.step, default=None)


def _read_groups(rank: RankRun, kinds: dict[Collective, int]) -> dict[str, Calls]:
    table = rank.table("collectives", _COLUMNS)
    table = table.filter(table["held_ns"].is_valid()).sort_by("index")
    group, name = (np.array(table[column].cast(pa.string()).to_pylist(), object) for column in ("group", "name"))
    step, index = read_integers(table, "step", _NO_STEP), read_integers(table, "index")
    start_ns = read_integers(table, "start_ns")
    kind = _number_kinds(table, kinds)
    is_shared = np.array([is_of_all(text) for text in name], np.bool_)
    detailed = frozenset(
        number
        for window in rank.manifest.windows
        for number in range(window.first_step, min(window.last_step, window.first_step + _THIN_FROM) + 1)
    )
    found = {}
    for one in dict.fromkeys(group.tolist()):
        own: Mask = group == one
        kept = own & is_shared
        numbered = bool(is_shared[own].all())
        is_thin = len(index) > 0 and int(index[own].max()) >= _THIN_FROM
        steps = _fill_steps(step[kept])
        found[one] = Calls(rank.rank, one, steps, kind[kept], index[kept], start_ns[kept], numbered, detailed, is_thin)
    return found


def _number_kinds(table: pa.Table, kinds: dict[Collective, int]) -> Ints:
    columns = [table[column].to_pylist() for column in ("name", "bytes", "dtype")]
    numbers = np.empty(table.num_rows, np.int64)
    for at, (name, size, dtype) in enumerate(zip(*columns, strict=True)):
        is_uneven = any(part in str(name) for part in _UNEVEN)
        call = Collective(str(name), None, "") if is_uneven else Collective(str(name), size, dtype or "")
        numbers[at] = kinds.setdefault(call, len(kinds))
    return numbers


def _fill_steps(step: Ints) -> Ints:
    """Return the step of each call. A call outside of finished steps gets the number of the next step."""
    before = np.maximum.accumulate(np.where(step == _NO_STEP, 0, step)) if len(step) else step
    return np.where(step == _NO_STEP, before + 1, step)


def _compare(
    members: Sequence[Calls], courses: Mapping[int, Course], names: Sequence[Collective], title: str
) -> LeftOut | Mismatch | None:
    steps = sorted({int(step) for calls in members for step in np.unique(calls.step)})
    common = [step for step in steps if all(calls.lists(step) for calls in members)]
    kept = [calls.keep(common) for calls in members]
    place = _find_first_difference(kept)
    if place is None:
        return _find_gone_past(kept, courses, names, title)
    there = {calls.rank: calls for calls in kept if len(calls.step) > place}
    first_step = min(int(calls.step[place]) for calls in there.values())
    if first_step <= common[0]:
        return None
    met = _choose_met(there, place, first_step)
    others = {rank: calls for rank, calls in there.items() if rank not in met}
    one, other = there[met[0]], next(iter(others.values()))
    called = names[int(other.kind[place])]
    meeting = _describe_meeting(one, place, first_step, names, title, met)
    left_out = all(_has_left_out(calls, place, first_step, int(one.kind[place])) for calls in others.values())
    return LeftOut(tuple(others), meeting) if left_out else Mismatch(tuple(others), called, meeting)


def _describe_meeting(
    one: Calls, place: int, step: int, names: Sequence[Collective], title: str, met: Sequence[int]
) -> Meeting:
    number = int(one.index[place]) + 1 if one.is_numbered else None
    return Meeting(number, title, step, names[int(one.kind[place])], tuple(met))


def _find_gone_past(
    members: Sequence[Calls], courses: Mapping[int, Course], names: Sequence[Collective], title: str
) -> LeftOut | None:
    """Return the ranks that certainly left out the last call and went on; None if no rank did.

    The training of these ranks has progressed further than that of the ranks that wait in the call.
    """
    most = max((len(calls.step) for calls in members), default=0)
    stand = [calls for calls in members if len(calls.step) == most]
    absent = [calls for calls in members if len(calls.step) == most - 1]
    if not absent or len(stand) + len(absent) < len(members):
        return None
    with contextlib.suppress(RunError):
        where = _find_stand(stand, courses)
        if where is None or any(int(where[0]) in calls.detailed or calls.is_thin for calls in members):
            return None
        fewest = min((courses[calls.rank].count(calls.group) or _NEVER for calls in stand), default=_NEVER)
        past = tuple(
            calls.rank
            for calls in absent
            if (courses[calls.rank].last or where) > where and (courses[calls.rank].count(calls.group) or 0) < fewest
        )
        if past:
            met = [calls.rank for calls in stand]
            return LeftOut(past, _describe_meeting(stand[0], most - 1, int(where[0]), names, title, met))
    return None


def _find_stand(stand: Sequence[Calls], courses: Mapping[int, Course]) -> Place | None:
    """Return the place in the training at which the ranks of `stand` entered their last call.

    None if they entered this call at different places, or if one of them has made further progress since.
    """
    entered = {courses[calls.rank].find_place(int(calls.start_ns[-1])) for calls in stand}
    lasts = {courses[calls.rank].last for calls in stand}
    return entered.pop() if len(entered) == 1 and entered == lasts else None


def _find_first_difference(members: Sequence[Calls]) -> int | None:
    """Return the first index in the calls at which a rank has another call or step than the rank with most calls; None
    if there is no difference.
    """
    longest = max(members, key=lambda calls: len(calls.step))
    places = []
    for calls in members:
        count = len(calls.step)
        differs = (calls.step != longest.step[:count]) | (calls.kind != longest.kind[:count])
        if differs.any():
            places.append(int(np.argmax(differs)))
    return min(places, default=None)


def _choose_met(there: Mapping[int, Calls], place: int, step: int) -> list[int]:
    """Return the ranks that made the expected call at index `place`, in step `step`; `there` maps each rank to its
    calls.

    They are the majority. In a tie, they are the ranks whose call is the same as in the previous step.
    """
    did = {rank: (int(calls.step[place]), int(calls.kind[place])) for rank, calls in there.items()}
    usual = [rank for rank, calls in there.items() if _does_usual(calls, place, step)]
    counts = Counter(did.values()).most_common()
    chosen = counts[0][0]
    if len(counts) > 1 and counts[1][1] == counts[0][1]:
        agreed = {did[rank] for rank in usual}
        chosen = agreed.pop() if len(agreed) == 1 else min(did.values())
    return [rank for rank, what in did.items() if what == chosen]


def _does_usual(calls: Calls, place: int, step: int) -> bool:
    within = place - int(np.searchsorted(calls.step, step))
    usual = calls.find_usual(step)
    if int(calls.step[place]) > step:
        return within == len(usual)
    return within < len(usual) and usual[within] == int(calls.kind[place])


def _has_left_out(calls: Calls, place: int, step: int, left_out: int) -> bool:
    """Return whether a rank skipped the call `left_out`, judged by its next call and its calls of the previous step."""
    if int(calls.step[place]) > step:
        return True
    usual, within, did = calls.find_usual(step), place - int(np.searchsorted(calls.step, step)), int(calls.kind[place])
    if usual[within : within + 2] == [left_out, did]:
        return True
    return left_out not in usual and usual[within : within + 1] == [did]
