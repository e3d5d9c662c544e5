"""What most routes of the API take: which run, which rank, and the rank itself, opened."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query
from fastapi import Path as InPath

from collector.format.run import RankRun
from profiler_server.web.services import ServicesOf

LARGEST_RANK = 9_999_999
LARGEST_STEP = 2**53
"""The greatest whole number that JSON readers keep exact."""

RunId = Annotated[str, InPath(description="The run's path below the base directory.", max_length=2000)]
Rank = Annotated[int | None, Query(ge=0, le=LARGEST_RANK, description="Rank; the first of the run by default.")]


def open_rank(run_id: RunId, services: ServicesOf, rank: Rank = None) -> RankRun:
    """Open the rank that a request asks for. Raises RunNotFoundError."""
    return services.catalog.open(run_id).rank(rank)


RankOf = Annotated[RankRun, Depends(open_rank)]
