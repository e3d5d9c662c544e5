"""Describe the standstills after which a job went on: the longest, the rank that held it up, the time of all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from collector.format.phases import PHASE_LABELS
from collector.format.schema.wording import format_number_of, format_ranks_named
from collector.format.standstills import Standstill


def describe_standstills(found: Iterable[Standstill]) -> str:
    """Return sentences on the longest standstill that the job got over and their number, "" for none."""
    groups = _group(found)
    if not groups:
        return ""
    longest = max(groups, key=_measure)
    one = _choose(longest)
    text = f"At step {one.step:,} the job stood still for {_measure(longest) / 1e9:,.0f} s: {_describe_position(one)}"
    waiting = {other.rank for other in longest} - set(one.missing)
    if one.missing and waiting:
        missing = "it" if one.missing == (one.rank,) else format_ranks_named(one.missing[:5])
        text += f"; {format_number_of(len(waiting), 'rank')} waited for {missing}"
    if len(groups) > 1:
        text += f". It stood still {len(groups)} times, for {sum(map(_measure, groups)) / 1e9:,.0f} s in all"
    return f"{text}. No average covers that."


def _group(found: Iterable[Standstill]) -> list[list[Standstill]]:
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
    """Return the longest record of a rank for which others waited; if there is no such rank, the longest record of all."""
    missing = {rank for one in group for rank in one.missing}
    own = [one for one in group if one.rank in missing]
    return max(own or group, key=lambda one: (one.for_ns, -one.rank))


def _describe_position(one: Standstill) -> str:
    where = f", at {one.stack}" if one.stack else ""
    if one.phase:
        return f"rank {one.rank} in {PHASE_LABELS[one.phase].lower()}{where}"
    if one.after:
        return f"rank {one.rank} after {PHASE_LABELS[one.after].lower()}{where}"
    return f"rank {one.rank}{where}"
