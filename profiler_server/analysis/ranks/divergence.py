"""The first collective of a group in which the ranks of a job were not together, from the calls that each has listed.

All ranks of a group call the same collectives in the same order. Only what every rank lists is compared: no call of
two ranks, no reduction of DDP, which each rank reads at its own pace, and no step of a detailed window.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from collector.format.intervals import Ints, Mask
from collector.format.rank import RankRun
from collector.format.schema.errors import RunError
from collector.format.steps import read_integers
from profiler_server.analysis.ranks.ends import Collective, Meeting

_COLUMNS = ("step", "name", "group", "index", "bytes", "dtype", "held_ns")
_OF_TWO = ("send", "recv", "recv_anysource")
_IN_BACKWARD = "DDP"
_UNEVEN = ("gather", "scatter", "alltoall", "all_to_all")
"""Collectives to which ranks may give pieces of different sizes."""
_THIN_FROM = 50_000
"""After so many calls a rank lists those of some steps only."""
_NO_STEP = -1


@dataclass(frozen=True, eq=False)
class Calls:
    """The collectives of one rank in one group, in order. `kind` is a place in the list of kinds that all ranks share.

    `is_numbered` says that an index counts nothing but these calls, `is_thin` that the rank lists some steps only; those
    of `detailed` steps are listed by their window.
    """

    rank: int
    step: Ints
    kind: Ints
    index: Ints
    is_numbered: bool
    detailed: frozenset[int]
    is_thin: bool

    def lists(self, step: int) -> bool:
        """Say whether the rank was not in a step yet, or lists all its calls of it."""
        if step > self.last_step:
            return True
        return step not in self.detailed and (not self.is_thin or bool((self.step == step).any()))

    @property
    def last_step(self) -> int:
        return int(self.step[-1]) if len(self.step) else 0

    def keep(self, steps: Sequence[int]) -> Calls:
        at = np.isin(self.step, steps)
        return Calls(
            self.rank, self.step[at], self.kind[at], self.index[at], self.is_numbered, self.detailed, self.is_thin
        )

    def find_usual(self, step: int) -> list[int]:
        """Return the kinds that the rank called in the last step before one."""
        before = self.step[self.step < step]
        return self.kind[self.step == before[-1]].tolist() if len(before) else []


@dataclass(frozen=True)
class Divergence:
    """`ranks` were not in the `meeting`: they left its call out, or (not `is_left_out`) called another one there."""

    ranks: tuple[int, ...]
    meeting: Meeting
    called: Collective
    is_left_out: bool


def find_divergence(ranks: Sequence[RankRun], titles: Mapping[str, str]) -> Divergence | None:
    """Return where the ranks of a job left each other first; `titles` are the names of its groups.

    None where they did not, where too little is listed, and where they did so from the first step on: they may have
    begun to record at different places.
    """
    kinds: dict[Collective, int] = {}
    groups: dict[str, list[Calls]] = {}
    for rank in ranks:
        with contextlib.suppress(RunError):  # its page says what is wrong with it
            for group, calls in _read_groups(rank, kinds).items():
                groups.setdefault(group, []).append(calls)
    names = list(kinds)
    found = [
        one
        for group, members in groups.items()
        if (one := _compare(members, names, titles.get(group, group) if len(groups) > 1 else "")) is not None
    ]
    return min(found, key=lambda one: one.meeting.step, default=None)


def _read_groups(rank: RankRun, kinds: dict[Collective, int]) -> dict[str, Calls]:
    """Read the calls of a rank by group, and number their kinds."""
    table = rank.table("collectives", _COLUMNS)
    table = table.filter(table["held_ns"].is_valid()).sort_by("index")
    group, name = (np.array(table[column].cast(pa.string()).to_pylist(), object) for column in ("group", "name"))
    step, index = read_integers(table, "step", _NO_STEP), read_integers(table, "index")
    kind = _number_kinds(table, kinds)
    is_of_all = np.array([text not in _OF_TWO and _IN_BACKWARD not in text for text in name], np.bool_)
    detailed = frozenset(
        number
        for window in rank.manifest.windows
        for number in range(window.first_step, min(window.last_step, window.first_step + _THIN_FROM) + 1)
    )
    found = {}
    for one in dict.fromkeys(group.tolist()):
        own: Mask = group == one
        kept = own & is_of_all
        numbered = bool(is_of_all[own].all())
        is_thin = len(index) > 0 and int(index[own].max()) >= _THIN_FROM
        found[one] = Calls(rank.rank, _fill_steps(step[kept]), kind[kept], index[kept], numbered, detailed, is_thin)
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
    """Give calls between the steps, and those of the one that did not end, the number of the next step."""
    before = np.maximum.accumulate(np.where(step == _NO_STEP, 0, step)) if len(step) else step
    filled: Ints = np.where(step == _NO_STEP, before + 1, step)
    return filled


def _compare(members: Sequence[Calls], names: Sequence[Collective], title: str) -> Divergence | None:
    steps = sorted({int(step) for calls in members for step in np.unique(calls.step)})
    common = [step for step in steps if all(calls.lists(step) for calls in members)]
    kept = [calls.keep(common) for calls in members]
    place = _find_first_difference(kept)
    if place is None:
        return None
    there = {calls.rank: calls for calls in kept if len(calls.step) > place}
    first_step = min(int(calls.step[place]) for calls in there.values())
    if first_step <= common[0]:
        return None
    met = _choose_met(there, place, first_step)
    others = {rank: calls for rank, calls in there.items() if rank not in met}
    one, other = there[met[0]], next(iter(others.values()))
    number = int(one.index[place]) + 1 if one.is_numbered else None
    call, called = names[int(one.kind[place])], names[int(other.kind[place])]
    meeting = Meeting(number, title, first_step, call, tuple(met))
    left_out = all(_has_left_out(calls, place, first_step, int(one.kind[place])) for calls in others.values())
    return Divergence(tuple(others), meeting, called, left_out)


def _find_first_difference(members: Sequence[Calls]) -> int | None:
    """Return the first place in which a rank called something else, or in another step, than the rank that came farthest."""
    longest = max(members, key=lambda calls: len(calls.step))
    places = []
    for calls in members:
        count = len(calls.step)
        differs = (calls.step != longest.step[:count]) | (calls.kind != longest.kind[:count])
        if differs.any():
            places.append(int(np.argmax(differs)))
    return min(places, default=None)


def _choose_met(there: Mapping[int, Calls], place: int, step: int) -> list[int]:
    """Return the ranks that were right: most of them, or of as many those that did as in the step before."""
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
    """Say whether a rank did next what follows that call in the step before, or what stands in its place there."""
    if int(calls.step[place]) > step:
        return True
    usual, within, did = calls.find_usual(step), place - int(np.searchsorted(calls.step, step)), int(calls.kind[place])
    if usual[within : within + 2] == [left_out, did]:
        return True
    return left_out not in usual and usual[within : within + 1] == [did]
