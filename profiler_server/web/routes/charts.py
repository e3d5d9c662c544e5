"""Charts again, for a range of steps: what a page asks for when its user zooms in."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import Path as InPath
from starlette.responses import JSONResponse, Response

from profiler_server.pages.steps.charts import CHART_NAMES, build_figure
from profiler_server.pages.steps.reading import narrow, read_step_data
from profiler_server.web.errors import BadQueryError
from profiler_server.web.parameters import LARGEST_STEP, RankOf

ROUTER = APIRouter(prefix="/api/v1/runs/{run_id:path}/charts", tags=["charts"])


@ROUTER.get("/{name}", summary="A per-step chart as a Plotly figure, for the steps from `from` to `to`")
def draw_chart(
    name: Annotated[str, InPath(max_length=40, description=f"One of {', '.join(CHART_NAMES)}.")],
    rank: RankOf,
    first: Annotated[int, Query(alias="from", ge=-LARGEST_STEP, le=LARGEST_STEP)] = 0,
    last: Annotated[int, Query(alias="to", ge=-LARGEST_STEP, le=LARGEST_STEP)] = LARGEST_STEP,
) -> Response:
    """Return every single step where the range is short enough to draw them. A range without steps is an empty chart."""
    if name not in CHART_NAMES:
        raise BadQueryError(f"There is no chart {name!r}; there are: {', '.join(CHART_NAMES)}")
    return JSONResponse(build_figure(name, narrow(read_step_data(rank), first, last)))
