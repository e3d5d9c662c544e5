"""Where the ranks of a recorded job were when it hung or was killed: who waits in a collective that another never entered."""

from __future__ import annotations

from collections.abc import Sequence

from collector.format.places import read_place
from collector.format.run import Run
from collector.format.stops import Stop, explain_places
from profiler_server.analysis.ranks.ranks import RankSummary, summarize_ranks


def find_stop(ranks: Sequence[RankSummary]) -> Stop | None:
    """Return who waited for whom at the end of a job that did not end by itself, None where nobody did."""
    crashed = [rank for rank in ranks if rank.state == "crashed"]
    read = [read_place(rank.rank, rank.moment, standing=rank.standing) for rank in crashed]
    places = [place for place in read if place is not None]
    return explain_places(places) if len(places) > 1 else None


def recall_stop(run: Run) -> Stop | None:
    """Return who waited for whom when a recorded job was cut off, None for one that was not."""
    if len(run.ranks) < 2 or run.manifest.source != "collector":
        return None
    return find_stop(summarize_ranks(run))
