"""Parameters of most API routes: the run, the rank, and the opened rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import pyarrow as pa
from fastapi import Depends, Query, Request
from fastapi import Path as InPath
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from collector.format.run import RankRun
from profiler_server.analysis.selection import SelectedRows, Selection, select_rows
from profiler_server.web.answers import BadQueryError
from profiler_server.web.links import API
from profiler_server.web.services import ServicesOf

LARGEST_RANK = 9_999_999
LARGEST_STEP = 2**53
"""The greatest whole number that JSON readers keep exact."""

RunId = Annotated[str, InPath(description="The run's path below the base directory.", max_length=2000)]
Rank = Annotated[int | None, Query(ge=0, le=LARGEST_RANK, description="Rank; the first of the run by default.")]
PageNumber = Annotated[int, Query(ge=1, le=10**9)]
Workers = Annotated[str | None, Query(max_length=200, description="DataLoader workers, such as 0,2-3; all by default.")]


def refuse_unknown_names(request: Request) -> None:
    """Refuse parameters that an API route does not have, because a misspelt filter would return everything.

    Raises BadQueryError, which names the wrong parameters and the valid ones.
    """
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or not route.path.startswith(API):
        return
    known = _list_names(route.dependant)
    unknown = [name[:40] for name in request.query_params if name not in known]
    if unknown:
        there = ", ".join(sorted(known)) or "none"
        raise BadQueryError(f"There is no parameter {', '.join(map(repr, unknown[:8]))} here; there are: {there}")


def _list_names(dependant: Dependant) -> set[str]:
    own = {field.alias for field in dependant.query_params}
    return own.union(*(_list_names(other) for other in dependant.dependencies))


def check_page(page: int, pages: int) -> None:
    if page > pages:
        raise BadQueryError(f"page={page} is past the end: the last page is {pages:,}")


def parse_number(given: Mapping[str, str], name: str, default: int) -> int:
    """Return a parameter of a page as a number. Raises BadQueryError."""
    text = given.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise BadQueryError(f"{name}={text[:40]!r} is not a number")
    return int(text)


def select_page(
    rows: pa.Table, selection: Selection, search_in: tuple[str, ...]
) -> tuple[SelectedRows, dict[str, Any]]:
    """Return one page of the selected rows, and the paging fields of the answer. A search looks in the columns
    `search_in`. Raises BadQueryError for a page past the last one.
    """
    found = select_rows(rows, selection, search_in)
    check_page(selection.page, found.pages)
    return found, {"matched": found.matched, "page": found.page, "pages": found.pages}


def open_rank(run_id: RunId, services: ServicesOf, rank: Rank = None) -> RankRun:
    """Open a rank of a run; the run's first rank if `rank` is None. Raises RunNotFoundError."""
    return services.catalog.open(run_id).rank(rank)


RankOf = Annotated[RankRun, Depends(open_rank)]
