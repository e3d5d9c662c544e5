"""The rows of a run's tables, paged, as JSON or CSV; and charts redrawn for the range of steps that a user zooms in on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa
from fastapi import APIRouter, Query
from fastapi import Path as InPath
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse

from collector.format.schema.tables import TABLES
from collector.format.timeline_rows import keep_workers
from profiler_server.analysis.selection import choose_workers
from profiler_server.pages.steps.charts import CHART_NAMES, build_figure, narrow, read_step_data
from profiler_server.store.sql import BATCH_ROWS, write_csv
from profiler_server.web.answers import BadQueryError, send_json
from profiler_server.web.parameters import LARGEST_STEP, RankOf, Workers, check_page

ROUTER = APIRouter(prefix="/api/v1/runs/{run_id:path}")
NAMES = ", ".join(sorted(TABLES))

Page = Annotated[int, Query(ge=1, le=10**9, description="Page, from 1.")]
PageSize = Annotated[int, Query(ge=1, le=1_000_000, description="Rows on a page.")]
Format = Annotated[Literal["json", "csv"], Query(description="JSON tells columns and units; CSV has the rows only.")]


@ROUTER.get("/tables/{name}", tags=["runs"], summary="Rows of a table, paged, as JSON or CSV")
def read_table(
    name: Annotated[str, InPath(description=f"One of {NAMES}.")],
    rank: RankOf,
    page: Page = 1,
    page_size: PageSize = 1000,
    format: Format = "json",
    workers: Workers = None,
) -> Response:
    """Return the rows of a table. `workers` selects rows of the table `stages`; rows outside of workers are always
    included."""
    if name not in TABLES:
        raise HTTPException(404, f"There is no table {name[:60]!r}; there are {NAMES}")
    if workers and name != "stages":
        raise HTTPException(
            400, f"The table {name} has no rows of workers; ask for workers={workers!r} of the table stages"
        )
    table, chosen = rank.table(name), choose_workers((rank,), workers)
    if chosen is not None:
        table = keep_workers(table, chosen)
    pages = max(1, -(-table.num_rows // page_size))
    check_page(page, pages)
    rows = table.slice((page - 1) * page_size, page_size)
    if format == "csv":
        headers = {"Content-Disposition": f'attachment; filename="{name}-rank{rank.rank}.csv"'}
        return StreamingResponse(write_csv(rows), media_type="text/csv; charset=utf-8", headers=headers)
    head = {
        "rank": rank.rank,
        "table": name,
        "page": page,
        "pages": pages,
        "total": table.num_rows,
        "columns": describe_columns(name),
    }
    if rows.num_rows <= BATCH_ROWS:
        return send_json({**head, "rows": rows.to_pylist()})
    return StreamingResponse(write_json(head, rows), media_type="application/json")


@ROUTER.get("/steps", tags=["runs"], summary="The steps table, paged")
def read_steps(rank: RankOf, page: Page = 1, page_size: PageSize = 1000) -> Response:
    return read_table("steps", rank, page, page_size)


def describe_columns(name: str) -> list[dict[str, Any]]:
    return [{"name": c.name, "dtype": c.dtype, "unit": c.unit, "meaning": c.meaning} for c in TABLES[name].columns]


def write_json(head: dict[str, Any], rows: pa.Table) -> Iterator[bytes]:
    """Yield a JSON object that ends in `rows`, in batches. A million rows as Python objects would take gigabytes."""
    yield msgspec.json.encode(head)[:-1] + b',"rows":'
    opening = b"["
    for batch in rows.to_batches(BATCH_ROWS):
        yield opening + msgspec.json.encode(batch.to_pylist())[1:-1]
        opening = b","
    yield b"]}"


@ROUTER.get(
    "/charts/{name}", tags=["charts"], summary="A per-step chart as a Plotly figure, for the steps from `from` to `to`"
)
def draw_chart(
    name: Annotated[str, InPath(max_length=40, description=f"One of {', '.join(CHART_NAMES)}.")],
    rank: RankOf,
    first: Annotated[int, Query(alias="from", ge=-LARGEST_STEP, le=LARGEST_STEP)] = 0,
    last: Annotated[int, Query(alias="to", ge=-LARGEST_STEP, le=LARGEST_STEP)] = LARGEST_STEP,
) -> Response:
    """Return a chart, with every single step if the range is short enough. A range without steps gives an empty chart."""
    if name not in CHART_NAMES:
        raise BadQueryError(f"There is no chart {name!r}; there are: {', '.join(CHART_NAMES)}")
    return JSONResponse(build_figure(name, narrow(read_step_data(rank), first, last)))
