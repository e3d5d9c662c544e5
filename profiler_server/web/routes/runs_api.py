"""Routes with runs as data: all runs, and one run with its ranks."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from collector.format.schema.tables import TABLES
from profiler_server.derive.stamps import shorten_stamp, stamp_rank
from profiler_server.store.headline import ListState, RunEntry
from profiler_server.store.run_query import PAGE_SIZE, PAGE_SIZE_LIMIT, RunQuery, select_runs
from profiler_server.web.answers import send_json
from profiler_server.web.parameters import PageNumber, Rank, RankOf, RunId, check_page
from profiler_server.web.services import Services, ServicesOf

ROUTER = APIRouter(prefix="/api/v1/runs", tags=["runs"])


@ROUTER.get("", summary="All runs, filtered, sorted and paged")
def list_runs(
    services: ServicesOf,
    q: Annotated[str, Query(max_length=200, description="Words that must all occur in id, name, script or host.")] = "",
    state: ListState | None = None,
    sort: Annotated[str, Query(max_length=40, description="A column of the list; `-` before it falls.")] = "-when",
    page: PageNumber = 1,
    page_size: Annotated[int, Query(ge=1, le=PAGE_SIZE_LIMIT)] = PAGE_SIZE,
) -> Response:
    listing = services.catalog.list_runs()
    found = select_runs(listing.runs, RunQuery(q, state, sort, page, page_size))
    check_page(page, found.pages)
    place = {"page": found.page, "pages": found.pages, "total": found.total}
    runs = [_describe(services, entry) for entry in found.runs]
    return send_json({"runs": runs, **place, "unreadable": listing.unreadable, "cut": listing.cut})


def _describe(services: Services, entry: RunEntry) -> dict[str, Any]:
    """Return one run. Times are ns, shares are fractions, and a missing value is null. `step_p50_ns` is the median of
    its steady steps, `data_wait_frac` the share of these steps that is data wait. `delta_frac` is the change of the
    median step relative to the run `previous_id`. `stands_still` and `end` are sentences, empty where neither is so."""
    manifest, headline = entry.manifest, entry.headline
    return {
        "id": entry.id,
        "name": entry.name,
        "state": entry.shown_state,
        "source": manifest.source,
        "created_unix_ns": manifest.created_unix_ns,
        "host": manifest.host,
        "script": manifest.script,
        "world_size": manifest.world_size,
        "ranks": headline.ranks,
        "steps": headline.steps,
        "step_p50_ns": headline.step_p50_ns,
        "data_wait_frac": headline.data_wait_frac,
        "previous_id": entry.previous_id,
        "delta_frac": entry.delta_frac,
        "stands_still": headline.stands_still,
        "end": _peek_end(services, entry),
    }


def _peek_end(services: Services, entry: RunEntry) -> str:
    """Return how a failed or crashed job ended, as a sentence. "" for any other job, and if the end is not known
    yet; then it is judged in the background."""
    if entry.shown_state not in ("failed", "crashed"):
        return ""
    try:
        panel = services.diagnoses.peek(entry)
    except RunError:  # the run may vanish at any moment
        return ""
    return panel.diagnosis.end if panel is not None and panel.diagnosis is not None else ""


@ROUTER.get("/{run_id:path}/report", summary="What `stepscope report --json` prints")
def read_report(run_id: RunId, services: ServicesOf) -> Response:
    from profiler_server.report import Reporting, build_report

    earlier = services.catalog.find_baseline(run_id)
    how = Reporting(earlier=services.catalog.open(earlier) if earlier is not None else None)
    return send_json(build_report(services.catalog.open(run_id), how=how))


@ROUTER.get("/{run_id:path}/live", summary="How far a run is that records")
def read_live(rank: RankOf) -> Response:
    """Return the state of a rank and its last step. `stamp` changes with new data."""
    try:
        steps = rank.table("steps", ("step",))["step"]
        last = int(steps[-1].as_py()) if len(steps) else 0
    except RunError:
        last = 0
    stamp = shorten_stamp(stamp_rank(rank.run_path, rank.rank))
    return send_json({"state": rank.state, "steps": last, "stamp": stamp})


@ROUTER.get("/{run_id:path}", summary="One run: manifests, state, and which tables are there")
def read_run(run_id: RunId, services: ServicesOf, rank: Rank = None) -> Response:
    """Return a run, and one of its ranks; `rank` is null if no rank has written yet."""
    run = services.catalog.open(run_id)
    ranks = run.ranks
    chosen = _describe_rank(run.rank(rank)) if ranks or rank is not None else None
    return send_json({"id": run_id, "state": run.state, "manifest": run.manifest, "ranks": ranks, "rank": chosen})


def _describe_rank(rank: RankRun) -> dict[str, Any]:
    """Return one rank and its tables. `problem` is why the manifest cannot be read; other fields are then empty."""
    found: dict[str, Any] = {"rank": rank.rank, "state": "crashed", "manifest": None, "tables": (), "problem": ""}
    try:
        tables = [{"name": name, **vars(rank.status(name))} for name in sorted(TABLES)]
        return {**found, "state": rank.state, "manifest": rank.manifest, "tables": tables}
    except RunError as error:
        return {**found, "problem": str(error)}
