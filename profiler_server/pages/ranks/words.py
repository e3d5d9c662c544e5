"""What the page says in sentences and in its head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from collector.format.phases import PHASE_LABELS
from collector.format.schema.manifest import RunManifest
from profiler_server.analysis.ranks.collectives import CollectiveRow, count_late
from profiler_server.analysis.ranks.ranks import RankSummary, Straggler
from profiler_server.format import format_count, format_duration, format_number_of, format_share

LATE_FRAC = 0.7
"""From this share of the collectives on, the rank that comes last is named."""


@dataclass(frozen=True)
class Stat:
    """One figure of the head, and what it is."""

    label: str
    value: str
    note: str


def describe_straggler(straggler: Straggler | None) -> str:
    """Say which rank is behind, by how much, and what grew; or that they are alike."""
    if straggler is None:
        return "There is only one rank with steps, so there is nothing to compare it with."
    share = f"{100 * straggler.behind_frac:.0f} %" if straggler.behind_frac >= 0.0095 else "under 1 %"
    others = "the median of the others" if straggler.others > 1 else "the other"
    if straggler.is_unsure:
        return f"Rank {straggler.rank} is {share} behind {others}, but steps vary so much that this may be chance."
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


def list_stats(manifest: RunManifest, ranks: Sequence[RankSummary], straggler: Straggler | None) -> tuple[Stat, ...]:
    known = [rank for rank in ranks if rank.steps]
    steps = np.array([rank.step_ns for rank in known])
    wait = np.array([rank.phases_ns["communication"] for rank in known])
    hosts = len({rank.host for rank in ranks if rank.host})
    where = f", on {format_number_of(hosts, 'host')}" if hosts else ""
    stats = [
        Stat("Ranks", format_count(len(known)), f"of {manifest.world_size:,}{where}"),
        Stat("Mean step", format_duration(float(steps.mean())), f"{_span(steps)} over the ranks"),
    ]
    if straggler is not None:
        stats.append(
            Stat(
                "Slowest rank", f"rank {straggler.rank}", f"{format_duration(straggler.own_ns)} outside of collectives"
            )
        )
        label = "Median of the others" if straggler.others > 1 else "The other rank"
        stats.append(Stat(label, format_duration(straggler.others_ns), "outside of collectives"))
    if wait.any():
        stats.append(
            Stat("Held in collectives", format_share(float((wait / steps).mean())), "of the step, mean of the ranks")
        )
    else:
        stats.append(Stat("Held in collectives", "not seen", "what backward hides counts as backward"))
    return tuple(stats)


def _span(values: np.ndarray) -> str:
    return f"{format_duration(float(values.min()))} to {format_duration(float(values.max()))}"
