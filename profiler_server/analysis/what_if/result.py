"""What a what-if analysis answers, however it was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from profiler_server.format import format_share

Method = Literal["replay", "steps"]


@dataclass(frozen=True)
class WhatIf:
    """What-if figures of a job. Each S is a ratio of mean step times to those of the ideal job, 1 for no slowdown.

    `slowdown` is S, `waste_frac` 1 - 1/S; `discrepancy_frac` is the measured mean step over the modelled one, less 1.
    `by_operation`, `by_rank` and `by_stage` are S with only that part as it was measured. `worker_share` (M_W) and
    `stage_share` (M_S) say which part of the loss would be gone with the worst 3 % of the ranks, or the last stage,
    mended. `mend_rank_gain_ns` is what the mean step would gain if that rank alone were as the ideal one, None where ranks meet
    once in each step: the verdict measures it there, by how late each of them comes.
    `even_stages_frac` is the share of the mean step that goes where all stages have the same work, and `even_work_frac`
    where all micro-batches of a stage have. `method` is
    replay (of every operation) or steps (one synchronisation per step). `stages` are the ranks of each stage of a
    pipeline. `reason` says why the figures are absent.
    """

    slowdown: float | None = None
    waste_frac: float | None = None
    discrepancy_frac: float | None = None
    by_operation: Mapping[str, float] | None = None
    by_rank: Mapping[int, float] | None = None
    by_stage: Mapping[int, float] | None = None
    worker_share: float | None = None
    stage_share: float | None = None
    mend_rank_gain_ns: Mapping[int, float] | None = None
    even_stages_frac: float = 0.0
    even_work_frac: float = 0.0
    stages: tuple[tuple[int, ...], ...] = ()
    method: Method = "steps"
    reason: str = ""


MOST_DISCREPANCY = 0.05
"""A model whose steps differ more from the measured ones says nothing about them."""
WORST_PERCENT = 3


def distrust(discrepancy: float, method: Method) -> WhatIf:
    """Return the answer of a model that does not meet the measured steps."""
    text = (
        f"The modelled steps differ from the measured ones by {format_share(abs(discrepancy))}; what-if figures are given up to "
        f"{format_share(MOST_DISCREPANCY)}."
    )
    return WhatIf(discrepancy_frac=discrepancy, method=method, reason=text)


def choose_worst(by_rank: Mapping[int, float]) -> set[int]:
    """Return the worst 3 % of the ranks by their S, at least one."""
    count = -(-len(by_rank) * WORST_PERCENT // 100)
    return set(sorted(by_rank, key=lambda rank: (-by_rank[rank], rank))[:count])
