"""What the page says in sentences and in its head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from collector.format.schema.manifest import RunManifest
from profiler_server.analysis.ranks.ranks import RankSummary, find_noun
from profiler_server.facts.job import Judgement, Straggler
from profiler_server.format import format_count, format_duration, format_number_of, format_share
from profiler_server.pages.ranks.rows import measure_own


@dataclass(frozen=True)
class Stat:
    """One figure of the head, and what it is."""

    label: str
    value: str
    note: str


def list_stats(manifest: RunManifest, ranks: Sequence[RankSummary], judged: Judgement) -> tuple[Stat, ...]:
    straggler = judged.straggler
    known, noun = [rank for rank in ranks if rank.steps], find_noun(ranks)
    steps = np.array([rank.step_ns for rank in known])
    wait = np.array([rank.phases_ns["communication"] for rank in known])
    hosts = len({rank.host for rank in ranks if rank.host})
    where = f", on {format_number_of(hosts, 'host')}" if hosts else ""
    stats = [
        Stat("Ranks", format_count(len(known)), f"of {max(manifest.world_size, len(ranks)):,}{where}"),
        Stat(f"Mean {noun}", format_duration(float(steps.mean())), _span(steps)),
    ]
    if straggler is not None:
        stats += _list_own(straggler, measure_own(known, judged.pause))
    if judged.meetings and not judged.is_hidden:
        one = "collective" if judged.source == "collectives" else noun
        what = format_number_of(judged.meetings, one)
        residual = f"± {format_duration(judged.residual_ns[1])}"
        # By so much the ranks leave a meeting apart; over several meetings it does not add up.
        stats.append(Stat("One lateness known to", residual, f"in 95 % of {what}; means are known better"))
    if wait.any():
        stats.append(
            Stat("Held in collectives", format_share(float((wait / steps).mean())), f"of the {noun}, mean of the ranks")
        )
    else:
        stats.append(Stat("Held in collectives", "not seen", "what backward hides counts as backward"))
    return tuple(stats)


def _list_own(straggler: Straggler, own_ns: Mapping[int, float]) -> Iterator[Stat]:
    """Say the own time of the slowest rank and of the others, as the table has them."""
    own = format_duration(own_ns.get(straggler.rank, straggler.own_ns))
    yield Stat("Slowest rank", f"rank {straggler.rank}", f"{own} outside of collectives")
    others = [time for rank, time in own_ns.items() if rank != straggler.rank]
    # Of a pipeline the others are those of its stage.
    middle = float(np.median(others)) if len(others) == straggler.others else straggler.others_ns
    label = "Median of the others" if straggler.others > 1 else "The other rank"
    yield Stat(label, format_duration(middle), "outside of collectives")


def _span(values: np.ndarray) -> str:
    least, most = format_duration(float(values.min())), format_duration(float(values.max()))
    return "the same on all ranks" if least == most else f"{least} to {most} over the ranks"
