"""The data pipeline: how full its queues were, what its stages did, and which of them limits the step."""

from __future__ import annotations

from collector.run import RankRun
from profiler_server.analysis.results import QueueSummary, StageSummary


def summarize_queues(rank: RankRun) -> tuple[QueueSummary, ...]:
    """Return one row per queue, in the order in which a batch passes them; empty if none were sampled."""
    return ()


def summarize_stages(rank: RankRun) -> tuple[StageSummary, ...]:
    """Return one row per stage, in pipeline order; empty if none were recorded."""
    return ()
