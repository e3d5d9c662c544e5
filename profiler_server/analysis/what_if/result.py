"""What a what-if analysis answers, however it was made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from profiler_server.facts.ranks import JobSlowdown
from profiler_server.format import format_share

MOST_DISCREPANCY = 0.05
"""A model whose steps differ more from the measured ones says nothing about them."""
WORST_PERCENT = 3


def distrust(discrepancy: float, method: Literal["replay", "steps"]) -> JobSlowdown:
    """Return the answer of a model that does not meet the measured steps."""
    text = (
        f"The modelled steps differ from the measured ones by {format_share(abs(discrepancy))}; what-if figures are given up to "
        f"{format_share(MOST_DISCREPANCY)}."
    )
    return JobSlowdown(discrepancy_frac=discrepancy, method=method, reason=text)


def choose_worst(by_rank: Mapping[int, float]) -> set[int]:
    """Return the worst 3 % of the ranks by their S, at least one."""
    count = -(-len(by_rank) * WORST_PERCENT // 100)
    return set(sorted(by_rank, key=lambda rank: (-by_rank[rank], rank))[:count])
