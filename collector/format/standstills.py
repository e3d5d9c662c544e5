"""Standstills that a job got over: which steps they spoil, and where the job was meanwhile.

Each rank keeps its own in the facts of its manifest. They are judged while they last (`collector.format.standing`): a
long step alone does not tell a hang from an evaluation or a checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from collector.format.phases import PHASE_LABELS
from collector.format.schema.wording import format_number_of, format_ranks_named

FACT = "standstills"
MOST_KEPT = 20
REGULAR_TIMES = 3
"""A run that was silent so often for as long, or half as long, works that way: none of it is a standstill."""
_LONGEST_STACK = 400


@dataclass(frozen=True)
class Standstill:
    """One of one rank. `step` was open then; `missing` are the ranks that others waited for, of which it may be one."""

    rank: int
    step: int
    for_ns: int
    ended_unix_ns: int
    phase: str = ""
    after: str = ""
    stack: str = ""
    missing: tuple[int, ...] = ()

    @property
    def begun_unix_ns(self) -> int:
        return self.ended_unix_ns - self.for_ns

    def write(self) -> dict[str, Any]:
        """Return it as a manifest keeps it."""
        return {name: value for name, value in asdict(self).items() if name != "rank"} | {"missing": [*self.missing]}


def read_standstills(rank: int, facts: Mapping[str, Any]) -> tuple[Standstill, ...]:
    """Read what a manifest tells of them; what is no standstill is left out."""
    told = facts.get(FACT)
    found = (_read(rank, entry) for entry in (told[:MOST_KEPT] if isinstance(told, list) else ()))
    return tuple(one for one in found if one is not None)


def say_standstills(found: Iterable[Standstill]) -> str:
    """Say of the longest of all ranks when it was and which rank did what, "" for none; of more, how many there were."""
    groups = _group(found)
    if not groups:
        return ""
    longest = max(groups, key=_measure)
    one = _choose(longest)
    text = f"At step {one.step:,} the job stood still for {_measure(longest) / 1e9:,.0f} s: {_say_place(one)}"
    waiting = {other.rank for other in longest} - set(one.missing)
    if one.missing and waiting:
        missing = "it" if one.missing == (one.rank,) else format_ranks_named(one.missing[:5])
        text += f"; {format_number_of(len(waiting), 'rank')} waited for {missing}"
    if len(groups) > 1:
        text += f". It stood still {len(groups)} times, for {sum(map(_measure, groups)) / 1e9:,.0f} s in all"
    return f"{text}. No average covers that."


def _group(found: Iterable[Standstill]) -> list[list[Standstill]]:
    """Return those that different ranks tell of one time."""
    groups: list[list[Standstill]] = []
    for one in sorted(found, key=lambda one: one.begun_unix_ns):
        if groups and one.begun_unix_ns < max(other.ended_unix_ns for other in groups[-1]):
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def _measure(group: Sequence[Standstill]) -> int:
    return max(one.for_ns for one in group)


def _choose(group: Sequence[Standstill]) -> Standstill:
    """Return what the rank tells that the others waited for; where it tells nothing, the one that stood longest."""
    missing = {rank for one in group for rank in one.missing}
    own = [one for one in group if one.rank in missing]
    return max(own or group, key=lambda one: (one.for_ns, -one.rank))


def _say_place(one: Standstill) -> str:
    where = f", at {one.stack}" if one.stack else ""
    if one.phase:
        return f"rank {one.rank} in {PHASE_LABELS[one.phase].lower()}{where}"
    if one.after:
        return f"rank {one.rank} after {PHASE_LABELS[one.after].lower()}{where}"
    return f"rank {one.rank}{where}"


def _read(rank: int, told: Any) -> Standstill | None:
    if not isinstance(told, dict):
        return None
    step, for_ns, ended = (_number(told.get(name)) for name in ("step", "for_ns", "ended_unix_ns"))
    if step is None or not for_ns or ended is None:
        return None
    stack, missing = told.get("stack"), told.get("missing")
    numbers = [_number(value) for value in missing] if isinstance(missing, list) else []
    return Standstill(
        rank=rank,
        step=step,
        for_ns=for_ns,
        ended_unix_ns=ended,
        phase=_phase(told.get("phase")),
        after=_phase(told.get("after")),
        stack=stack[:_LONGEST_STACK] if isinstance(stack, str) else "",
        missing=tuple(number for number in numbers if number is not None),
    )


def _phase(value: Any) -> str:
    return value if isinstance(value, str) and value in PHASE_LABELS else ""


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62 else None
