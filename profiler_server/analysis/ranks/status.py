"""What a status of NCCL's RAS shows: communicators in which a rank does not answer, failed, or is behind the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from collector.format.parts import find_files
from collector.format.run import Run
from collector.format.schema.errors import RunError
from collector.format.schema.wording import format_number_of, format_ranks_named
from profiler_server.analysis.ranks.held import Cause, Hang

MOST_RANKS = 4096
MOST_LEVELS = 3
"""Counts that are told apart in one sentence."""
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
class _Group:
    name: str
    size: int
    members: dict[int, _Member] = field(default_factory=dict)


def find_held(run: Run) -> Hang | None:
    """Return the communicator that holds a job, None where all of its ranks are alike or no status was imported.

    Of several, first those with a rank that does not answer, then a failed one, then the one with the smallest part of
    its ranks behind: ranks that wait there fall behind in others.
    """
    groups = _read_groups(run)
    found = [held for group in groups if (held := _judge(group)) is not None]
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
    """Say what a status of a job without a fault holds, "" for a run without one."""
    groups = _read_groups(run)
    if not groups:
        return ""
    communicators = format_number_of(len(groups), "communicator")
    ranks = format_number_of(len(run.ranks), "rank")
    return f"NCCL's status names {communicators} of {ranks}: all of them answer, and none is behind the others."


def _judge(group: _Group) -> Hang | None:
    return _find_lost(group) or _find_failed(group) or _find_behind(group)


def _find_lost(group: _Group) -> Hang | None:
    for state, (one_is, many_are) in _LOST.items():
        lost = [rank for rank, member in group.members.items() if member.state == state]
        if lost:
            verb, process = one_is if len(lost) == 1 else many_are, group.members[lost[0]].process
            others = len(group.members) - len(lost)
            text = f"{format_ranks_named(lost)} {verb} ({process}); {others:,} of {group.size:,} ranks answer."
            return _hold(group, "lost", lost, text)
    return None


def _find_failed(group: _Group) -> Hang | None:
    for rank, member in group.members.items():
        if member.state in ("failed", "aborted"):
            known = _ERRORS.get(member.error or 0, f"error {member.error}")
            what = f"failed ({known})" if member.state == "failed" else "was aborted"
            return _hold(group, "failed", [rank], f"rank {rank} {what}, {member.process}.")
    return None


def _find_behind(group: _Group) -> Hang | None:
    kinds = {name for member in group.members.values() for name in member.counts}
    uneven = [(name, levels) for name in sorted(kinds) if len(levels := _list_levels(group.members, name)) > 1]
    if not uneven:
        return None
    # The kind that the fewest ranks are behind in says most.
    name, levels = min(uneven, key=lambda entry: sum(len(ranks) for ranks in list(entry[1].values())[:-1]))
    most = max(levels)
    behind = sorted(rank for count, ranks in levels.items() if count < most for rank in ranks)
    held = _hold(group, "behind", behind, f"{_say_levels(name, levels)}. {_AGAIN}")
    return replace(held, name=name, sequence=most)


def _list_levels(members: Mapping[int, _Member], name: str) -> dict[int, list[int]]:
    """Return the ranks by how many calls of a kind they launched, the least first."""
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


def _hold(group: _Group, cause: Cause, missing: Sequence[int], text: str) -> Hang:
    waiting = tuple(rank for rank in group.members if rank not in set(missing))
    told = f"Communicator {group.name}: {text}"
    return Hang(group.name, "", 0, "", None, cause, tuple(missing), waiting, {}, {}, told)


def _read_groups(run: Run) -> list[_Group]:
    groups: dict[str, _Group] = {}
    for number in run.ranks[:MOST_RANKS]:
        rank = run.read_rank(number)
        try:
            if not find_files(rank.folder, "communicators"):
                continue
            rows = rank.table("communicators").to_pylist()
        except RunError:
            continue
        for row in rows:
            group = groups.setdefault(str(row["group"]), _Group(str(row["group"]), row["group_size"]))
            new = _Member(str(row["state"]), row["error"], str(row["process"]))
            member = group.members.setdefault(row["group_rank"], new)
            if row["collective"] is not None and row["count"] is not None:
                member.counts[row["collective"]] = row["count"]
    for group in groups.values():
        group.members = dict(sorted(group.members.items()))
    return list(groups.values())
