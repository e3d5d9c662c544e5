"""What the ranks of a job have in common and where one of them differs, in sentences for pages and the report."""

from __future__ import annotations

from collections.abc import Sequence

from collector.format.phases import PHASE_LABELS
from profiler_server.analysis.ranks.collectives import CollectiveRow, count_late
from profiler_server.analysis.ranks.ranks import RankSummary, Straggler, find_noun, find_straggler
from profiler_server.format import format_duration, format_number_of, format_share

LATE_FRAC = 0.7
"""From this share of the collectives on, the rank that comes last is named."""
LEAST_BEHIND_FRAC = 0.001
"""A rank that is behind by less is not named: its share would read 0.0 %."""


def describe_ranks(ranks: Sequence[RankSummary], rows: Sequence[CollectiveRow]) -> list[str]:
    """Say which rank is slow, which collective costs most, and how much of the step the ranks are held in collectives."""
    held = describe_held(ranks)
    lines = [describe_straggler(find_straggler(ranks)), held, describe_slowest_collective(rows)]
    return [line for line in (*lines, describe_communication(ranks, rows)) if line]


def describe_held(ranks: Sequence[RankSummary]) -> str:
    """Say for how much of the step the ranks are held in collectives, and which one most; nothing if none is."""
    held = {rank.rank: rank.phases_ns["communication"] / rank.step_ns for rank in ranks if rank.steps and rank.step_ns}
    if not any(held.values()):
        return ""
    most = max(held, key=lambda number: held[number])
    mean = sum(held.values()) / len(held)
    return (
        f"The ranks are held in collectives for {format_share(mean)} of the {find_noun(ranks)} on average, rank {most} for "
        f"{format_share(held[most])}."
    )


def describe_slowest_collective(rows: Sequence[CollectiveRow]) -> str:
    """Name the collective that takes longest in the detailed windows, and how much of that is waiting for another rank."""
    totals: dict[str, list[int]] = {}
    for row in rows:
        total = totals.setdefault(row.name, [0, 0, 0])
        for place, value in enumerate((row.count, row.total_ns, row.wait_ns or 0)):
            total[place] += value
    if not totals:
        return ""
    name = max(totals, key=lambda key: totals[key][1])
    count, total_ns, wait_ns = totals[name]
    share = f"; {format_share(wait_ns / total_ns)} of that is waiting for another rank" if wait_ns else ""
    return f"{name} takes longest of the collectives: {format_duration(total_ns / max(count, 1))} a call{share}."


def describe_straggler(straggler: Straggler | None) -> str:
    """Say which rank is behind, by how much, and what grew; or that they are alike."""
    if straggler is None:
        return "Only one rank has figures, so there is nothing to compare it with."
    share = format_share(straggler.behind_frac)
    others = "the median of the others" if straggler.others > 1 else "the other"
    if straggler.is_unsure:
        return f"Rank {straggler.rank} is {share} behind {others}, but times vary so much that this may be chance."
    if not straggler.is_slow and straggler.behind_frac < LEAST_BEHIND_FRAC:
        return "The ranks are alike: none is behind the others by as much as 0.1 %."
    if not straggler.is_slow:
        return f"The ranks are alike: the slowest, rank {straggler.rank}, is {share} behind {others}."
    grew = PHASE_LABELS[straggler.phase].lower()
    before, now = format_duration(straggler.phase_others_ns), format_duration(straggler.phase_ns)
    return f"Rank {straggler.rank} is {share} slower than {others}; its {grew} grew: {now} against {before}."


def describe_communication(ranks: Sequence[RankSummary], rows: Sequence[CollectiveRow]) -> str:
    """Say who waited for whom in the collectives of the windows, and what the step's communication phase covers."""
    parts = []
    late = count_late(rows)
    matched = sum(late.values())
    if matched:
        rank = max(late, key=lambda number: late[number])
        waits = {row.rank: 0 for row in rows}
        for row in rows:
            waits[row.rank] += row.wait_ns or 0
        longest = max(waits, key=lambda number: waits[number])
        who = f"rank {rank} came last to {late[rank]} of {format_number_of(matched, 'collective')}"
        waited = f"rank {longest} waited longest, {format_duration(waits[longest])} in all"
        if late[rank] >= LATE_FRAC * matched:
            parts.append(f"In the detailed windows {who}; {waited}.")
        else:
            parts.append(f"In the detailed windows the ranks came last by turns ({who}); {waited}.")
    if all(not rank.phases_ns.get("communication") for rank in ranks if rank.steps):
        parts.append(
            "No rank's training thread was seen to be held in a collective: what DistributedDataParallel reduces inside "
            "of the backward pass counts as backward, and waiting for a slow rank with it."
        )
    return " ".join(parts)
