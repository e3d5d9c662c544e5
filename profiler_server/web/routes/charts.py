"""Charts again, for a range of steps: what a page asks for when its user zooms in."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import Path as InPath
from starlette.responses import JSONResponse, Response

from profiler_server.pages.steps.charts import CHART_NAMES, build_figure
from profiler_server.pages.steps.reading import narrow, read_step_data
from profiler_server.web.errors import BadQueryError
from profiler_server.web.services import ServicesOf

ROUTER = APIRouter(prefix="/api/v1/runs/{run_id:path}/charts", tags=["charts"])
_MOST_STEPS = 2**53

RunId = Annotated[str, InPath(description="The run's path below the base directory.", max_length=2000)]


@ROUTER.get("/{name}", summary="A per-step chart as a Plotly figure, for the steps from `from` to `to`")
def draw_chart(
    run_id: RunId,
    name: Annotated[str, InPath(max_length=40, description=f"One of {', '.join(CHART_NAMES)}.")],
    services: ServicesOf,
    rank: Annotated[int | None, Query(ge=0, le=9_999_999, description="Rank, the first by default.")] = None,
    first: Annotated[int, Query(alias="from", ge=-_MOST_STEPS, le=_MOST_STEPS)] = 0,
    last: Annotated[int, Query(alias="to", ge=-_MOST_STEPS, le=_MOST_STEPS)] = _MOST_STEPS,
) -> Response:
    """Return every single step where the range is short enough to draw them. A range without steps is an empty chart."""
    if name not in CHART_NAMES:
        raise BadQueryError(f"There is no chart {name!r}; there are: {', '.join(CHART_NAMES)}")
    data = read_step_data(services.catalog.open(run_id).rank(rank))
    return JSONResponse(build_figure(name, narrow(data, first, last)), headers={"Cache-Control": "no-store"})
