"""The head of the page: its figures, and the picture of who holds whom up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collector.format.schema.manifest import RunManifest
from profiler_server.analysis.ranks.ranks import RankSummary, find_noun
from profiler_server.diagnosis.rank_sentences import name_causes
from profiler_server.facts.job import LateRank, RankVerdict, Slow
from profiler_server.figures.strips import percent
from profiler_server.format import format_count, format_duration, format_number_of, format_share
from profiler_server.pages.ranks.rows import measure_own


@dataclass(frozen=True)
class Stat:
    """One figure of the head, and what it is."""

    label: str
    value: str
    note: str


def list_stats(manifest: RunManifest, ranks: Sequence[RankSummary], verdict: RankVerdict) -> tuple[Stat, ...]:
    comparison = verdict.comparison
    known, noun = [rank for rank in ranks if rank.steps], find_noun(ranks)
    steps = np.array([rank.step_ns for rank in known])
    wait = np.array([rank.phases_ns["communication"] for rank in known])
    hosts = len({rank.host for rank in ranks if rank.host})
    where = f", on {format_number_of(hosts, 'host')}" if hosts else ""
    stats = [
        Stat("Ranks", format_count(len(known)), f"of {max(manifest.world_size, len(ranks)):,}{where}"),
        Stat(f"Mean {noun}", format_duration(float(steps.mean())), _span(steps)),
    ]
    if comparison is not None:
        stats += _list_own(comparison.latest, measure_own(known, comparison.pause), comparison.stages > 1)
    if comparison is not None and comparison.meetings and not comparison.is_hidden:
        one = "collective" if comparison.source == "collectives" else noun
        what = format_number_of(comparison.meetings, one)
        residual = f"± {format_duration(comparison.residual_ns[1])}"
        # By so much the ranks leave a meeting apart; over several meetings it does not add up.
        stats.append(Stat("One lateness known to", residual, f"in 95 % of {what}; means are known better"))
    if wait.any():
        stats.append(
            Stat("Held in collectives", format_share(float((wait / steps).mean())), f"of the {noun}, mean of the ranks")
        )
    else:
        stats.append(Stat("Held in collectives", "not seen", "what backward hides counts as backward"))
    return tuple(stats)


def _list_own(latest: LateRank, own_ns: Mapping[int, float], is_of_stage: bool) -> Iterator[Stat]:
    """Say the own time of the slowest rank and of the others, as the table has them; of a pipeline those of its stage."""
    own = format_duration(own_ns.get(latest.rank, latest.own_ns))
    yield Stat(
        "Slowest rank in its stage" if is_of_stage else "Slowest rank",
        f"rank {latest.rank}",
        f"{own} outside of collectives",
    )
    others = [time for rank, time in own_ns.items() if rank != latest.rank]
    middle = float(np.median(others)) if len(others) == latest.others else latest.others_ns
    label = "Median of the others" if latest.others > 1 else "The other rank"
    yield Stat(f"{label} in it" if is_of_stage else label, format_duration(middle), "outside of collectives")


def _span(values: np.ndarray) -> str:
    least, most = format_duration(float(values.min())), format_duration(float(values.max()))
    return "the same on all ranks" if least == most else f"{least} to {most} over the ranks"


@dataclass(frozen=True)
class HoldUp:
    """Lengths are SVG percentages. `work` is of the others, who wait from there to the end, when the late rank comes."""

    rank: int
    others: str
    late: str
    cause: str
    work: str
    wait: str


def draw_hold_up(verdict: RankVerdict) -> HoldUp | None:
    """Lay the picture out; None where no rank holds the others up, and where first one and then another does."""
    if not isinstance(verdict, Slow) or verdict.comparison.is_hidden:
        return None
    found, others = verdict.comparison.latest, verdict.comparison.others
    if found.own_ns <= 0:
        return None
    late_ns = found.own_ns - found.others_ns
    return HoldUp(
        rank=found.rank,
        others="the other rank" if others == 1 else f"{others:,} others",
        late=format_duration(late_ns),
        cause=name_causes(found.causes),
        work=percent(found.others_ns, found.own_ns),
        wait=percent(late_ns, found.own_ns),
    )
