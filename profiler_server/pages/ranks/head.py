"""The head of the Ranks page: its figures, and the time that the job would save if all ranks were alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from collector.format.phases import PHASE_LABELS
from profiler_server.diagnosis.limits.facts import MOST_FRAC
from profiler_server.diagnosis.limits.stragglers import LEAST_LOSS_FRAC
from profiler_server.facts.job import BETWEEN, LateRank
from profiler_server.facts.ranks import Compared, JobSlowdown, RankFigures, find_noun
from profiler_server.format import ABSENT, format_count, format_duration, format_number_of, format_share
from profiler_server.widgets import Stat

MOST_ROWS = 8
"""The most ranks and operations listed, the worst first."""
LEAST_GAIN_NS = 100_000.0
DIGITS = 3
"""Decimals of a slowdown."""
_COMMUNICATION = "communication"
"""The entry of `by_operation` for communication, if ranks meet once in a step."""
_OTHER_LABELS = {BETWEEN: "Between steps"}
Key = TypeVar("Key", int, str)


def list_stats(world_size: int, ranks: Sequence[RankFigures], found: Compared) -> tuple[Stat, ...]:
    comparison = found.verdict.comparison
    known, noun = [rank for rank in ranks if rank.steps], find_noun(ranks)
    steps = np.array([rank.step_ns for rank in known])
    wait = np.array([rank.phases_ns["communication"] for rank in known])
    hosts = len({rank.host for rank in ranks if rank.host})
    where = f", on {format_number_of(hosts, 'host')}" if hosts else ""
    stats = [
        Stat("Ranks", format_count(len(known)), f"of {max(world_size, len(ranks)):,}{where}"),
        Stat(f"Mean {noun}", format_duration(float(steps.mean())), _span(steps)),
    ]
    if comparison is not None:
        stats += _list_own(
            comparison.latest, {rank.rank: found.own_ns[rank.rank] for rank in known}, comparison.stages > 1
        )
    if comparison is not None and comparison.meetings and not comparison.is_hidden:
        one = "collective" if comparison.source == "collectives" else noun
        what = format_number_of(comparison.meetings, one)
        residual = f"± {format_duration(comparison.residual_ns[1])}"
        # The ranks leave one meeting this far apart. The error does not grow with the number of meetings.
        stats.append(Stat("Error of one lateness", residual, f"in 95 % of {what}; smaller for a mean"))
    if wait.any():
        stats.append(
            Stat("Held in collectives", format_share(float((wait / steps).mean())), f"of the {noun}, mean of the ranks")
        )
    else:
        stats.append(Stat("Held in collectives", "not seen", "what backward hides counts as backward"))
    return tuple(stats)


def _list_own(latest: LateRank, own_ns: Mapping[int, float], is_of_stage: bool) -> Iterator[Stat]:
    """Yield the own work of the slowest rank, and the median own work of the other ranks, as the table shows both.

    In a pipeline, the median is over the other ranks of the same stage. `own_ns` maps a rank to its own work.
    """
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
class SlowdownRow:
    """One rank, stage or operation, judged by two replays of the job. An ideal time is the mean over all ranks.

    `slowdown`: mean step divided by the ideal step, if only this entry keeps its measured times. `gain`: time saved per
    step, if only this entry takes the ideal time. `loss_frac`: slowdown above 1, relative to the largest of the table.
    """

    name: str
    slowdown: str
    loss_frac: float
    gain: str


@dataclass(frozen=True)
class WhatIfView:
    """The panel on the time that a job saves if all ranks are alike. `note` says how the figures are computed. If there
    are no figures, `reason` says why, and the tables are empty; else `reason` is "".
    """

    sentence: str
    note: str
    reason: str
    ranks: tuple[SlowdownRow, ...]
    operations: tuple[SlowdownRow, ...]
    stages: tuple[SlowdownRow, ...]
    has_gain: bool


def view_what_if(found: JobSlowdown | None) -> WhatIfView | None:
    if found is None:
        return None
    if found.slowdown is None:
        return WhatIfView("", "", found.reason, (), (), (), False)
    gains = found.mend_rank_gain_ns or {}
    return WhatIfView(
        sentence=say_slowdown(found),
        note=_say_how(found),
        reason="",
        ranks=_list(found.by_rank, lambda rank: f"rank {rank}", gains),
        operations=_list(found.by_operation, lambda name: _OTHER_LABELS.get(name) or PHASE_LABELS.get(name, name), {}),
        stages=_list(found.by_stage, lambda stage: f"stage {stage}", {}),
        has_gain=bool(gains),
    )


def say_slowdown(found: JobSlowdown) -> str:
    if found.slowdown is None or found.waste_frac is None:
        return ""
    if found.waste_frac < LEAST_LOSS_FRAC:
        return "If each rank took the mean time of all for the same work, the step would be as long as it is."
    text = _say_loss(found.slowdown, found.waste_frac, found.by_operation or {})
    gains = found.mend_rank_gain_ns or {}
    best = max(gains, key=lambda rank: gains[rank], default=None)
    if best is not None and gains[best] > 0:
        text += f" Rank {best} alone at that mean gains {format_duration(gains[best])} a step."
    if found.stage_share is not None and found.stage_share >= MOST_FRAC:
        part = format_share(found.stage_share) if found.stage_share < 1.0 else "all"
        advice = ": move layers to earlier stages" if found.even_stages_frac >= found.even_work_frac else ""
        text += f" The last stage accounts for {part} of the loss{advice}."
    if len(found.stages) > 1:
        text += (
            f" The same work in all stages alone makes the step {format_share(found.even_stages_frac)} shorter, in all "
            f"micro-batches of each stage {format_share(found.even_work_frac)}."
        )
    return text


def _say_loss(slowdown: float, waste_frac: float, by_operation: Mapping[str, float]) -> str:
    """Return a sentence on the cost of differences between ranks, without communication, whose time no rank causes."""
    whole = f"{format_share(waste_frac)} shorter (slowdown {slowdown:.2f})"
    varying = by_operation.get(_COMMUNICATION, 1.0)
    if varying - 1.0 < LEAST_LOSS_FRAC:
        return f"If each rank took the mean time of all for the same work, the step would be {whole}."
    of_ranks = max(1.0 - varying / slowdown, 0.0)
    return (
        f"If each rank took the mean time of all for the same work, the step would be {format_share(of_ranks)} shorter; if "
        f"communication took as long as in the median step as well, {whole}."
    )


def _say_how(found: JobSlowdown) -> str:
    how = (
        "Every operation is replayed with the mean length of its kind, communication with the median"
        if found.method == "replay"
        else "The ranks meet once in each step: it lasts as long as the slowest works, and the communication after that"
    )
    return f"{how}. The model meets the measured steps within {format_share(abs(found.discrepancy_frac or 0.0))}."


def _format_gain(gain_ns: float | None) -> str:
    """Return the gain as text: `nothing` below `LEAST_GAIN_NS`, n/a if `gain_ns` is None."""
    if gain_ns is None:
        return ABSENT
    return format_duration(gain_ns) if gain_ns >= LEAST_GAIN_NS else "nothing"


def _list(
    figures: Mapping[Key, float] | None, name: Callable[[Key], str], gains: Mapping[Key, float]
) -> tuple[SlowdownRow, ...]:
    """Return a row for each of the greatest slowdowns in `figures`, greatest first, and one row for all the others.

    `gains` is the time to be gained by key. Slowdowns that are displayed alike are in order of their keys."""
    figures = figures or {}
    ordered = sorted(figures.items(), key=lambda entry: (-round(entry[1], DIGITS), entry[0]))
    slow = sum(round(value, DIGITS) > 1.0 for value in figures.values())
    count = min(slow or len(ordered), MOST_ROWS)
    if len(ordered) == count + 1:
        count += 1  # a line that summarizes only one other line would not be shorter
    rows, rest = ordered[:count], [value for _, value in ordered[count:]]
    largest = max((value - 1.0 for _, value in rows), default=0.0)
    listed = [
        SlowdownRow(
            name=name(key),
            slowdown=f"{value:.{DIGITS}f}",
            loss_frac=max(value - 1.0, 0.0) / largest if largest > 0 else 0.0,
            gain=_format_gain(gains.get(key)),
        )
        for key, value in rows
    ]
    if rest:
        least, most = (f"{value:.{DIGITS}f}" for value in (min(rest), max(rest)))
        text = most if least == most else f"at most {most}"
        listed.append(SlowdownRow(format_number_of(len(rest), "other"), text, 0.0, ""))
    return tuple(listed)
