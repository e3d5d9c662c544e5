"""The state of one rank of a job, read from the facts `moment` and `standing` of its manifest.

`moment` holds the state of the training thread, and how many collectives it has completed in each process group.
`standing` holds how long nothing has happened on this thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from collector.format.phases import PHASE_LABELS, read_phase
from collector.format.schema.manifest import RunState
from collector.format.schema.reading import read_count

MOST_GROUPS = 32
_MOST_MEMBERS = 1024
_LONGEST_NAME = 100
_LONGEST_STACK = 400
_NO_LABEL = ("", "undefined")
IN_BACKWARD = "DDP"
"""Text in the name of a reduction that the backward waits for."""
_OF_TWO = ("send", "recv", "recv_anysource")


def is_of_all(name: str) -> bool:
    """Return whether all ranks of a group call it equally often: no sends, nor DDP's reductions, which are sampled."""
    return name not in _OF_TWO and IN_BACKWARD not in name


@dataclass(frozen=True)
class Group:
    """A process group. `ranks` is empty if unknown; `is_whole` is true for a group of all ranks of the job."""

    name: str
    label: str = ""
    ranks: tuple[int, ...] = ()
    is_whole: bool = False

    @property
    def title(self) -> str:
        return self.name if self.label in _NO_LABEL else self.label.removeprefix("mesh_")


@dataclass(frozen=True)
class Still:
    """How long nothing has happened on a training thread (`for_ns`), and two limits above which that is a standstill.

    `limit_ns` applies if ranks wait for other ranks. The longer `alone_limit_ns` applies if all ranks have the same
    position.
    """

    for_ns: int
    limit_ns: int
    alone_limit_ns: int
    stack: str = ""
    works: bool = False
    """Whether the process computes, saves or compiles meanwhile."""
    waits: bool = False
    """Whether the thread is in torch's distributed code, where calls may be invisible."""


@dataclass(frozen=True)
class RankPosition:
    """The state of one rank. `phase` is the phase of step `step` that it was in, "" outside of every call; `after` is
    the phase of the call before. `ended` counts the collectives that it had completed, in all groups; `name` and
    `bytes` describe the next collective.

    With `is_begun` the next collective had begun; otherwise `name` and `bytes` are taken from the previous step.
    `seen_unix_ns` is the time of the state. `still` is None if the thread makes progress. `counts` has the number of
    completed collectives for each group of the rank. `group` names the group of the next collective, `backward_group`
    the group in which backwards reduce gradients. Versions before 0.4.0 have no values on groups.
    """

    rank: int
    step: int
    phase: str
    after: str
    in_collective: bool
    ended: int
    name: str
    bytes: int | None
    is_begun: bool
    seen_unix_ns: int = 0
    still: Still | None = None
    state: RunState = "recording"
    group: str = ""
    counts: tuple[tuple[Group, int], ...] = ()
    backward_group: str | None = None

    @property
    def has_begun_ns(self) -> int:
        return self.seen_unix_ns - (self.still.for_ns if self.still else 0)

    @property
    def stands(self) -> bool:
        return self.still is not None and self.still.for_ns >= self.still.limit_ns

    @property
    def stands_alone(self) -> bool:
        return self.still is not None and self.still.for_ns >= self.still.alone_limit_ns

    def find_group(self, name: str | None) -> Group | None:
        return next((group for group, _ in self.counts if group.name == name), None)

    def count(self, group: Group) -> int:
        """Return how many collectives of a group the rank had completed; 0 if the rank has no count for the group."""
        return next((ended for own, ended in self.counts if own == group), 0)

    @property
    def number(self) -> int:
        """Number of the next collective, from 1: in its group, or among all collectives if the group is unknown."""
        group = self.find_group(self.group)
        return (self.ended if group is None else self.count(group)) + 1

    def belongs_to(self, group: Group) -> bool:
        if group.is_whole:
            return True
        return self.rank in group.ranks if group.ranks else any(own == group for own, _ in self.counts)


def read_position(rank: int, told: Any, seen_unix_ns: int = 0, standing: Any = None) -> RankPosition | None:
    """Return a rank's state from the facts `moment` (as `told`) and `standing` of its manifest; None if they have none."""
    still = _read_still(standing)
    if not isinstance(told, dict):
        told = standing if still is not None else None
    if not isinstance(told, dict):
        return None
    following = told.get("next")
    following = following if isinstance(following, dict) else {}
    counts = told.get("groups")
    read = [_read_count(entry) for entry in counts[:MOST_GROUPS]] if isinstance(counts, list) else []
    reduces = told.get("backward_group")
    return RankPosition(
        rank=rank,
        step=read_count(told.get("step")) or 0,
        phase=read_phase(told.get("phase")),
        after=read_phase(told.get("after")),
        in_collective=told.get("in_collective") is True,
        ended=read_count(told.get("ended")) or 0,
        name=_text(following.get("name", "")),
        bytes=read_count(following.get("bytes")),
        is_begun=following.get("is_begun") is True,
        seen_unix_ns=seen_unix_ns,
        still=still,
        group=_text(following.get("group", "")),
        counts=tuple(count for count in read if count is not None),
        backward_group=reduces[:_LONGEST_NAME] if isinstance(reduces, str) else None,
    )


def describe_position(position: RankPosition) -> str:
    """Return the phase or collective in which a rank was, and the rank's step, as the end of a sentence."""
    group = position.find_group(position.group)
    if position.in_collective and group is not None and len(position.counts) > 1:
        return (
            f"in {position.name or 'collective'} {position.number:,} of group {group.title}, in step {position.step:,}"
        )
    if position.phase:
        return f"in {PHASE_LABELS[position.phase].lower()} of step {position.step:,}"
    if position.after:
        return f"after {PHASE_LABELS[position.after].lower()} of step {position.step:,}"
    return f"before step {position.step:,}"


def describe_stack(position: RankPosition) -> str:
    return f", at {position.still.stack}" if position.still is not None and position.still.stack else ""


def list_ranks(positions: Iterable[RankPosition]) -> tuple[int, ...]:
    return tuple(position.rank for position in positions)


def _read_still(told: Any) -> Still | None:
    if not isinstance(told, dict):
        return None
    times = [read_count(told.get(name)) for name in ("for_ns", "limit_ns", "alone_limit_ns")]
    if None in times:
        return None
    for_ns, limit_ns, alone_ns = (time or 0 for time in times)
    stack = told.get("stack")
    words = stack[:_LONGEST_STACK] if isinstance(stack, str) else ""
    return Still(for_ns, limit_ns, alone_ns, words, told.get("works") is True, told.get("waits") is True)


def _read_count(told: Any) -> tuple[Group, int] | None:
    if not isinstance(told, dict) or not isinstance(told.get("name"), str):
        return None
    ranks = told.get("ranks")
    numbers = [read_count(rank) for rank in ranks[:_MOST_MEMBERS]] if isinstance(ranks, list) else []
    members = tuple(number for number in numbers if number is not None)
    group = Group(_text(told["name"]), _text(told.get("label", "")), members, told.get("is_whole") is True)
    return group, read_count(told.get("ended")) or 0


def _text(value: Any) -> str:
    return str(value)[:_LONGEST_NAME]
