"""The route of a run's operator table: by type, operator, kernel, host order or module; as JSON or CSV."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from collector.format.lens import StepRange
from profiler_server.analysis.operators.operator_groups import GROUPS, GroupTable
from profiler_server.analysis.selection import Selection, select_rows
from profiler_server.store.sql import write_csv
from profiler_server.web.answers import BadQueryError, send_json
from profiler_server.web.parameters import PageNumber, RankOf, select_page

ROUTER = APIRouter(prefix="/api/v1/runs/{run_id:path}", tags=["operators"])
CSV_ROWS = 1_000_000

GroupName = Annotated[
    Literal["types", "operators", "kernels", "host", "modules", "roofline"], Query(description="What a row stands for.")
]
Sort = Annotated[
    str, Query(max_length=40, description="A column of the rows; `-` before it falls. The default is the share.")
]
Search = Annotated[str, Query(max_length=200, description="Words that must stand in a name, whatever their case.")]
Steps = Annotated[
    str, Query(max_length=30, pattern=r"^(\d{1,12}(-\d{1,12})?)?$", description="Only these steps, such as 10-12.")
]


@ROUTER.get("/operators", summary="Operators, types, kernels or modules of the detailed windows")
def list_operators(
    rank: RankOf,
    group: GroupName = "operators",
    sort: Sort = "",
    q: Search = "",
    page: PageNumber = 1,
    size: Annotated[int, Query(ge=1, le=1000)] = 100,
    steps: Steps = "",
    format: Annotated[Literal["json", "csv"], Query(description="csv holds every row that matches.")] = "json",
) -> Response:
    """List the operators. 404 if the run has no detailed window, 400 for a column that the group does not have."""
    table = GROUPS[group].tabulate(rank, _parse_steps(steps))
    column, descending = _parse_sort(sort, group, table)
    if format == "csv":
        selected = select_rows(table.rows, Selection(column, descending, q, 1, CSV_ROWS), GROUPS[group].search_in)
        headers = {"Content-Disposition": f'attachment; filename="{group}.csv"'}
        return StreamingResponse(write_csv(selected.rows), media_type="text/csv; charset=utf-8", headers=headers)
    selection = Selection(column, descending, q, page, size)
    found, place = select_page(table.rows, selection, GROUPS[group].search_in)
    head = {"group": group, "measure": table.measure, "steps": table.steps}
    return send_json({**head, **place, "loose": found.loose, "rows": found.rows.to_pylist()})


def _parse_steps(text: str) -> StepRange | None:
    if not text:
        return None
    first, _, last = text.partition("-")
    if int(last or first) < int(first):
        raise BadQueryError(f"steps={text} ends before it starts; write 10-12")
    return StepRange(int(first), int(last or first))


def _parse_sort(text: str, group: str, table: GroupTable) -> tuple[str, bool]:
    if not text:
        return ("order", False) if group == "host" else ("share_frac", True)
    column = text.removeprefix("-")
    if column not in table.rows.column_names:
        there = ", ".join(table.rows.column_names)
        raise BadQueryError(f"sort={text!r} is no column of {group}; it has: {there}")
    return column, text.startswith("-")
