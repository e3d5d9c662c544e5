"""The picture of who holds whom up: what the late rank works until they meet, and what the others do meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_server.diagnosis.rank_sentences import name_causes
from profiler_server.facts.job import Judgement
from profiler_server.figures.strips import percent
from profiler_server.format import format_duration


@dataclass(frozen=True)
class HoldUp:
    """Lengths are SVG percentages. `work` is of the others, who wait from there to the end, when the late rank comes."""

    rank: int
    others: str
    late: str
    cause: str
    work: str
    wait: str


def draw_hold_up(judged: Judgement) -> HoldUp | None:
    """Lay the picture out; None where no rank holds the others up, and where first one and then another does."""
    found = judged.straggler
    if found is None or judged.handover is not None or not found.is_slow or judged.is_hidden or found.own_ns <= 0:
        return None
    late_ns = found.own_ns - found.others_ns
    return HoldUp(
        rank=found.rank,
        others="the other rank" if found.others == 1 else f"{found.others:,} others",
        late=format_duration(late_ns),
        cause=name_causes(found.causes),
        work=percent(found.others_ns, found.own_ns),
        wait=percent(late_ns, found.own_ns),
    )
