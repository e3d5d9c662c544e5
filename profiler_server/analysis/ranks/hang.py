"""The cause of a hang, from imported data: the last collectives of every rank in Flight Recorder dumps, or a status of
NCCL's RAS."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from collector.format.parts import find_files
from collector.format.run import RankRun, Run
from collector.format.schema.errors import RunError, read_or
from collector.format.schema.wording import format_number_of, format_ranks_named
from profiler_server.analysis.ranks.ends import Call, Cause, Hang
from profiler_server.facts.ranks import MOST_RANKS


def find_hang(run: Run) -> Hang | None:
    """Return the collective that hangs. None if every collective ended, or if no dumps and no status were imported."""
    if not run.manifest.is_imported:  # its ranks have no dumps, and there may be very many of them
        return None
    dumps = _read_dumps(run)
    groups = dumps.groups
    pending = [(call_number, name) for name, group in groups.items() for call_number in group.list_open()]
    if not pending and dumps.pairs:
        return _explain_pair(dumps)
    if not pending:
        return None if groups else find_held(run)
    # The group in which most calls are open: others hang because of it.
    open_calls = Counter(name for _, name in pending)
    chosen = max(open_calls, key=lambda name: (open_calls[name], name))
    return _explain(groups[chosen], min(number for number, name in pending if name == chosen), run.ranks)


@dataclass
class _Group:
    """A process group: its ranks, if a dump lists them, and the collectives of each rank as calls[rank][number].

    `entered` maps a rank to the highest number of a call that the rank is known to have entered. `silent` are ranks
    whose dumps have no call of the group left, because later calls overwrote them.
    """

    name: str
    label: str = ""
    members: tuple[int, ...] = ()
    calls: dict[int, dict[int, Call]] = field(default_factory=dict)
    entered: dict[int, int] = field(default_factory=dict)
    silent: set[int] = field(default_factory=set)

    def has_entered(self, rank: int, number: int) -> bool:
        """Return whether a rank entered the call with this number or a later one. Calls are numbered in order."""
        return max(self.calls.get(rank, ()), default=-1) >= number or self.entered.get(rank, -1) >= number

    def list_open(self) -> list[int]:
        """Return the number of each call that did not end, once for each rank inside the call.

        A call has ended for all ranks if every rank entered it and at least one rank left it. If another rank's dump
        then shows the call as open, this dump is only older.
        """
        left = {number for calls in self.calls.values() for number, call in calls.items() if call.is_completed}
        # A dump that was overwritten up to a call that ended: those before it in the group have ended, too.
        past = max((min(calls) for calls in self.calls.values() if calls[min(calls)].is_completed), default=-1)
        expected = self.members or tuple(self.calls)
        return [
            number
            for calls in self.calls.values()
            for number, call in calls.items()
            if not call.is_completed
            and not ((number in left or number < past) and all(self.has_entered(rank, number) for rank in expected))
        ]


@dataclass
class _Dumps:
    """The contents of all ranks' dumps. `pairs` are unfinished sends and receives: the time, the rank and its call."""

    groups: dict[str, _Group] = field(default_factory=dict)
    pairs: list[tuple[int, int, str, int, Call]] = field(default_factory=list)


def _explain_pair(dumps: _Dumps) -> Hang:
    _, rank, group, sequence, call = min(dumps.pairs, key=lambda pair: pair[:2])
    label = dumps.groups[group].label
    waiting = tuple(sorted({pair[1] for pair in dumps.pairs}))
    return Hang(group, label, sequence, call.name, call.bytes, "pair", (), waiting, {rank: (sequence, call)}, {})


def _explain(group: _Group, sequence: int, dumped: Sequence[int]) -> Hang:
    inside = {rank: calls[sequence] for rank, calls in group.calls.items() if sequence in calls}
    missing = tuple(rank for rank in group.members or sorted(group.calls) if not group.has_entered(rank, sequence))
    usual = Counter(_describe(call) for call in inside.values()).most_common(1)[0][0]
    differing = {rank: _describe(call) for rank, call in inside.items() if _describe(call) != usual}
    told = tuple(rank for rank in missing if rank in set(dumped) and rank not in group.silent)
    silent = tuple(rank for rank in missing if rank in group.silent)
    absent = tuple(rank for rank in missing if rank not in set(dumped))
    causes: tuple[tuple[Cause, object], ...] = (
        ("missing", told),
        ("no_dump", absent),
        ("overwritten", silent),
        ("mismatch", differing),
    )
    cause: Cause = next((name for name, found in causes if found), "network")
    call = next(call for call in inside.values() if _describe(call) == usual)
    past = {rank for rank in {*group.calls, *group.entered} if rank not in inside and group.has_entered(rank, sequence)}
    return Hang(
        group=group.name,
        label=group.label,
        sequence=sequence,
        name=usual if cause == "mismatch" else call.name,
        bytes=call.bytes,
        cause=cause,
        missing=told or absent or silent,
        waiting=tuple(sorted(past | {rank for rank, entered in inside.items() if not entered.is_completed})),
        last={
            rank: max(group.calls[rank].items(), key=lambda entry: entry[0]) for rank in told if group.calls.get(rank)
        },
        differing=differing,
    )


def _describe(call: Call) -> str:
    """Return the name and size of a call as text; both must be the same on all ranks.

    Gathers, scatters and all-to-alls get no size, because their sizes may differ.
    """
    if not call.shapes or any(part in call.name for part in ("gather", "scatter", "all_to_all")):
        return call.name
    return f"{call.name} of {call.shapes} {call.dtype}".strip()


def _read_dumps(run: Run) -> _Dumps:
    dumps, told = _Dumps(), dict[int, Mapping[str, Any]]()
    for rank, rows in _read_tables(run, "flight"):
        if (facts := read_or(None, lambda rank: rank.manifest.facts, rank)) is None:
            continue
        told[rank.rank] = facts
        for row in rows:
            _note_call(dumps, rank.rank, row)
        for group in dumps.groups.values():
            _describe_group(group, facts)
    for name, group in list(dumps.groups.items()):
        _note_entered(group, told)
        if not group.calls and not any(pair[2] == name for pair in dumps.pairs):
            del dumps.groups[name]
    return dumps


def _read_tables(run: Run, name: str) -> Iterator[tuple[RankRun, list[dict[str, Any]]]]:
    """Yield each rank whose table `name` was imported and can be read, with the rows of this table."""
    for number in run.ranks[:MOST_RANKS]:
        rank = run.read_rank(number)
        with contextlib.suppress(RunError):
            if find_files(rank.folder, name):
                yield rank, rank.table(name).to_pylist()


def _note_call(dumps: _Dumps, rank: int, row: Mapping[str, Any]) -> None:
    group = dumps.groups.setdefault(str(row["group"]), _Group(str(row["group"])))
    shapes, dtype, place = (row[name] or "" for name in ("shapes", "dtype", "place"))
    call = Call(row["name"], row["bytes"], shapes, dtype, place, row["is_completed"])
    sequence = int(row["sequence"])
    if not row["is_p2p"]:
        group.calls.setdefault(rank, {})[sequence] = call
    elif not call.is_completed:
        dumps.pairs.append((int(row["start_ns"]), rank, group.name, sequence, call))


def _note_entered(group: _Group, told: Mapping[int, Mapping[str, Any]]) -> None:
    """Record how many calls of a group each rank has entered, from the counters in its dump.

    The calls in the dump do not suffice, because later calls may have overwritten them.
    """
    for rank, facts in told.items():
        entered = facts.get("entered_collectives")
        newest = entered.get(group.name) if isinstance(entered, dict) else None
        if isinstance(newest, int):
            group.entered[rank] = newest
        elif rank not in group.calls and facts.get("is_flight_cut") is True:
            group.silent.add(rank)


def _describe_group(group: _Group, facts: Mapping[str, Any]) -> None:
    """Set the ranks and the label of a group from a dump. In a dump the group of the whole job has no name."""
    members, labels = facts.get("process_groups"), facts.get("group_labels")
    if isinstance(members, dict) and not group.members:
        told = members.get(group.name) or (members.get("") if len(members) == 1 else None)
        if isinstance(told, (list, tuple)) and all(isinstance(rank, int) for rank in told):
            group.members = tuple(told)
    if isinstance(labels, dict) and not group.label:
        group.label = str(labels.get(group.name, ""))[:100]


MOST_LEVELS = 3
"""Different counts that one sentence lists."""
_LOST = {
    "dead": ("is considered dead", "are considered dead"),
    "unresponsive": ("does not answer", "do not answer"),
}
_ERRORS = {
    1: "unhandled CUDA error",
    2: "system error",
    3: "internal error",
    4: "invalid argument",
    5: "invalid usage",
    6: "error of a remote process",
}
_AGAIN = "Ask ncclras again: if the counts are the same then, the job hangs."


@dataclass
class _Member:
    state: str
    error: int | None
    process: str
    counts: dict[str, int] = field(default_factory=dict)


@dataclass
class _Communicator:
    name: str
    size: int
    members: dict[int, _Member] = field(default_factory=dict)


def find_held(run: Run) -> Hang | None:
    """Return the communicator that hangs; None if no communicator hangs or no status was imported.

    Of several, one with a rank that does not answer is chosen first, then one that failed, then the one with the
    smallest share of ranks behind, because ranks that wait there fall behind in other communicators.
    """
    groups = _read_groups(run)
    judged = (_find_lost(group) or _find_failed(group) or _find_behind(group) for group in groups)
    found = [held for held in judged if held is not None]
    if not found:
        return None
    order = ("lost", "failed", "behind")
    first = min(found, key=lambda held: (order.index(held.cause), len(held.missing) / max(len(held.waiting), 1)))
    more = len(found) - 1
    if more:
        differ = "more communicator is" if more == 1 else "more communicators are"
        first = replace(first, told=f"{first.told} {more:,} {differ} held or uneven, too.")
    return first


def describe_status(run: Run) -> str:
    """Return a description of NCCL's status for a job without a fault; "" for a run without a status."""
    groups = _read_groups(run)
    if not groups:
        return ""
    communicators = format_number_of(len(groups), "communicator")
    ranks = format_number_of(len(run.ranks), "rank")
    return f"NCCL's status names {communicators} of {ranks}: all of them answer, and none is behind the others."


def _find_lost(group: _Communicator) -> Hang | None:
    for state, (one_is, many_are) in _LOST.items():
        lost = [rank for rank, member in group.members.items() if member.state == state]
        if lost:
            verb, process = one_is if len(lost) == 1 else many_are, group.members[lost[0]].process
            others = len(group.members) - len(lost)
            text = f"{format_ranks_named(lost)} {verb} ({process}); {others:,} of {group.size:,} ranks answer."
            return _hold(group, "lost", lost, text)
    return None


def _find_failed(group: _Communicator) -> Hang | None:
    for rank, member in group.members.items():
        if member.state in ("failed", "aborted"):
            known = _ERRORS.get(member.error or 0, f"error {member.error}")
            what = f"failed ({known})" if member.state == "failed" else "was aborted"
            return _hold(group, "failed", [rank], f"rank {rank} {what}, {member.process}.")
    return None


def _find_behind(group: _Communicator) -> Hang | None:
    kinds = {name for member in group.members.values() for name in member.counts}
    uneven = [(name, levels) for name in sorted(kinds) if len(levels := _list_levels(group.members, name)) > 1]
    if not uneven:
        return None
    # The most informative kind is the one in which the fewest ranks are behind.
    name, levels = min(uneven, key=lambda entry: sum(len(ranks) for ranks in list(entry[1].values())[:-1]))
    most = max(levels)
    behind = sorted(rank for count, ranks in levels.items() if count < most for rank in ranks)
    held = _hold(group, "behind", behind, f"{_say_levels(name, levels)}. {_AGAIN}")
    return replace(held, name=name, sequence=most)


def _list_levels(members: Mapping[int, _Member], name: str) -> dict[int, list[int]]:
    """Map each number of launched calls `name` to the ranks that launched this many, the lowest number first."""
    levels: dict[int, list[int]] = {}
    for rank, member in members.items():
        if name in member.counts:
            levels.setdefault(member.counts[name], []).append(rank)
    return dict(sorted(levels.items()))


def _say_levels(name: str, levels: Mapping[int, Sequence[int]]) -> str:
    usual = Counter({count: len(ranks) for count, ranks in levels.items()}).most_common(1)[0][0]
    others = [(count, ranks) for count, ranks in levels.items() if count != usual]
    told = [
        f"{format_ranks_named(ranks)} {'has' if len(ranks) == 1 else 'have'} launched {count:,} {name}"
        for count, ranks in others[:MOST_LEVELS]
    ]
    if len(others) > MOST_LEVELS:
        told.append(f"{sum(len(ranks) for _, ranks in others[MOST_LEVELS:]):,} more ranks other counts")
    rest = len(levels[usual])
    return f"{', '.join(told)}, the {'other' if rest == 1 else f'{rest:,} others'} {usual:,}"


def _hold(group: _Communicator, cause: Cause, missing: Sequence[int], text: str) -> Hang:
    waiting = tuple(rank for rank in group.members if rank not in set(missing))
    told = f"Communicator {group.name}: {text}"
    return Hang(group.name, "", 0, "", None, cause, tuple(missing), waiting, {}, {}, told)


def _read_groups(run: Run) -> list[_Communicator]:
    groups: dict[str, _Communicator] = {}
    for _, rows in _read_tables(run, "communicators"):
        for row in rows:
            group = groups.setdefault(str(row["group"]), _Communicator(str(row["group"]), row["group_size"]))
            new = _Member(str(row["state"]), row["error"], str(row["process"]))
            member = group.members.setdefault(row["group_rank"], new)
            if row["collective"] is not None and row["count"] is not None:
                member.counts[row["collective"]] = row["count"]
    for group in groups.values():
        group.members = dict(sorted(group.members.items()))
    return list(groups.values())
