"""Why a job hangs: which rank never entered which collective, from the last collectives of every rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from collector.format.parts import find_files
from collector.format.run import Run
from collector.format.schema.errors import RunError
from profiler_server.analysis.ranks.held import Call, Cause, Hang
from profiler_server.analysis.ranks.status import find_held

MOST_RANKS = 4096


def find_hang(run: Run) -> Hang | None:
    """Return the collective that holds a job, None where every one has ended or neither dumps nor a status were imported."""
    if run.manifest.source == "collector":  # its ranks have no dumps, and there may be very many of them
        return None
    groups = _read_groups(run)
    pending = [(call_number, name) for name, group in groups.items() for call_number in group.list_open()]
    if not pending:
        return None if groups else find_held(run)
    # The group in which most calls are open: others hang because of it.
    open_calls = Counter(name for _, name in pending)
    chosen = max(open_calls, key=lambda name: (open_calls[name], name))
    return _explain(groups[chosen], min(number for number, name in pending if name == chosen), run.ranks)


@dataclass
class _Group:
    """A process group: its ranks where a dump tells them, and the collectives of each rank by number."""

    name: str
    label: str = ""
    members: tuple[int, ...] = ()
    calls: dict[int, dict[int, Call]] = field(default_factory=dict)

    def list_open(self) -> list[int]:
        """Return the number of each call that did not end, once for each rank inside of it.

        One that every rank entered and one has left ends for all: the others were only not seen to leave it.
        """
        left = Counter(number for calls in self.calls.values() for number, call in calls.items() if call.is_completed)
        entered = Counter(number for calls in self.calls.values() for number in calls)
        expected = len(self.members) or len(self.calls)
        return [
            number
            for calls in self.calls.values()
            for number, call in calls.items()
            if not call.is_completed and not (left[number] and entered[number] >= expected)
        ]


def _explain(group: _Group, sequence: int, dumped: Sequence[int]) -> Hang:
    inside = {rank: calls[sequence] for rank, calls in group.calls.items() if sequence in calls}
    missing = tuple(rank for rank in group.members or sorted(group.calls) if rank not in inside)
    usual = Counter(_describe(call) for call in inside.values()).most_common(1)[0][0]
    differing = {rank: _describe(call) for rank, call in inside.items() if _describe(call) != usual}
    told = tuple(rank for rank in missing if rank in set(dumped))
    cause: Cause = "missing" if told else "no_dump" if missing else "mismatch" if differing else "network"
    call = next(call for call in inside.values() if _describe(call) == usual)
    return Hang(
        group=group.name,
        label=group.label,
        sequence=sequence,
        name=usual if cause == "mismatch" else call.name,
        bytes=call.bytes,
        cause=cause,
        missing=told or missing,
        waiting=tuple(sorted(rank for rank, entered in inside.items() if not entered.is_completed)),
        last={
            rank: max(group.calls[rank].items(), key=lambda entry: entry[0]) for rank in told if group.calls.get(rank)
        },
        differing=differing,
    )


def _describe(call: Call) -> str:
    """Name and size: ranks that differ in them do not meet. Ranks may gather pieces of different sizes."""
    if not call.shapes or any(part in call.name for part in ("gather", "scatter", "all_to_all")):
        return call.name
    return f"{call.name} of {call.shapes} {call.dtype}".strip()


def _read_groups(run: Run) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    for number in run.ranks[:MOST_RANKS]:
        rank = run.read_rank(number)
        try:
            if not find_files(rank.folder, "flight"):
                continue
            rows, facts = rank.table("flight").to_pylist(), rank.manifest.facts
        except RunError:
            continue
        for row in rows:
            if row["is_p2p"]:
                continue
            group = groups.setdefault(str(row["group"]), _Group(str(row["group"])))
            group.calls.setdefault(number, {})[int(row["sequence"])] = _read_call(row)
        for group in groups.values():
            _describe_group(group, facts)
    return groups


def _describe_group(group: _Group, facts: Mapping[str, Any]) -> None:
    """Take the ranks and the label of a group from what a dump tells; the configuration of the whole job has no name."""
    members, labels = facts.get("process_groups"), facts.get("group_labels")
    if isinstance(members, dict) and not group.members:
        told = members.get(group.name) or (members.get("") if len(members) == 1 else None)
        if isinstance(told, (list, tuple)) and all(isinstance(rank, int) for rank in told):
            group.members = tuple(told)
    if isinstance(labels, dict) and not group.label:
        group.label = str(labels.get(group.name, ""))[:100]


def _read_call(row: Mapping[str, Any]) -> Call:
    return Call(
        row["name"], row["bytes"], row["shapes"] or "", row["dtype"] or "", row["place"] or "", row["is_completed"]
    )
