"""Routes with runs as data: all runs, and one run with its ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from collector.format.run import RankRun
from collector.format.schema.errors import RunError
from collector.format.schema.manifest import RankManifest, RunManifest, RunState
from collector.format.schema.tables import TABLES
from profiler_server.derive.stamps import shorten_stamp, stamp_rank
from profiler_server.store.catalog import Unreadable
from profiler_server.store.headline import ListState, RunEntry
from profiler_server.store.run_query import PAGE_SIZE, PAGE_SIZE_LIMIT, RunQuery, select_runs
from profiler_server.web.answers import send_json
from profiler_server.web.parameters import PageNumber, Rank, RankOf, RunId, check_page
from profiler_server.web.services import Services, ServicesOf

ROUTER = APIRouter(prefix="/api/v1/runs", tags=["runs"])


@dataclass(frozen=True)
class RunItem:
    """One run. Times are ns, shares are fractions, and a missing value is null. `step_p50_ns` is the median of its
    steady steps, `data_wait_frac` the share of these steps that is data wait. `delta_frac` is the change of the
    median step relative to the run `previous_id`.
    """

    id: str
    name: str
    state: ListState
    source: str
    created_unix_ns: int
    host: str
    script: str
    world_size: int
    ranks: tuple[int, ...]
    steps: int
    step_p50_ns: float | None
    data_wait_frac: float | None
    previous_id: str | None
    delta_frac: float | None
    stands_still: str
    """How the job stands still while it records, as a sentence; empty if it makes progress."""
    end: str
    """How the job ended before its scripts finished, as a sentence; empty until judged, and for all other jobs."""


@dataclass(frozen=True)
class RunItems:
    """A page of runs: `page` of `pages`, from 1. `total` is the number of runs on all pages, `unreadable` are
    folders that cannot be read. `cut` describes where the search for runs stopped, empty if it was complete."""

    runs: tuple[RunItem, ...]
    page: int
    pages: int
    total: int
    unreadable: tuple[Unreadable, ...]
    cut: str


@ROUTER.get("", summary="All runs, filtered, sorted and paged")
def list_runs(
    services: ServicesOf,
    q: Annotated[str, Query(max_length=200, description="Words that must all occur in id, name, script or host.")] = "",
    state: ListState | None = None,
    sort: Annotated[str, Query(max_length=40, description="A column of the list; `-` before it falls.")] = "-when",
    page: PageNumber = 1,
    page_size: Annotated[int, Query(ge=1, le=PAGE_SIZE_LIMIT)] = PAGE_SIZE,
) -> RunItems:
    listing = services.catalog.list_runs()
    found = select_runs(listing.runs, RunQuery(q, state, sort, page, page_size))
    check_page(page, found.pages)
    items = tuple(_describe(services, entry) for entry in found.runs)
    return RunItems(items, found.page, found.pages, found.total, listing.unreadable, listing.cut)


def _describe(services: Services, entry: RunEntry) -> RunItem:
    manifest, headline = entry.manifest, entry.headline
    return RunItem(
        id=entry.id,
        name=entry.name,
        state=entry.shown_state,
        source=manifest.source,
        created_unix_ns=manifest.created_unix_ns,
        host=manifest.host,
        script=manifest.script,
        world_size=manifest.world_size,
        ranks=headline.ranks,
        steps=headline.steps,
        step_p50_ns=headline.step_p50_ns,
        data_wait_frac=headline.data_wait_frac,
        previous_id=entry.previous_id,
        delta_frac=entry.delta_frac,
        stands_still=headline.stands_still,
        end=_peek_end(services, entry),
    )


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


@dataclass(frozen=True)
class TableItem:
    """A table. `state` shows whether it exists; `reason` is why it does not."""

    name: str
    state: str
    reason: str


@dataclass(frozen=True)
class RankItem:
    """One rank and its tables. `problem` is why the manifest cannot be read; other fields are then empty."""

    rank: int
    state: RunState
    manifest: RankManifest | None
    tables: tuple[TableItem, ...]
    problem: str = ""


@dataclass(frozen=True)
class RunDetail:
    """A run, and one of its ranks; `rank` is null if no rank has written yet."""

    id: str
    state: RunState
    manifest: RunManifest
    ranks: tuple[int, ...]
    rank: RankItem | None


@dataclass(frozen=True)
class Live:
    """The state of a rank and its number of steps; `stamp` changes with new data."""

    state: RunState
    steps: int
    stamp: str


@ROUTER.get("/{run_id:path}/report", summary="What `stepscope report --json` prints")
def read_report(run_id: RunId, services: ServicesOf) -> Response:
    from profiler_server.report import Reporting, build_report

    earlier = services.catalog.find_baseline(run_id)
    how = Reporting(earlier=services.catalog.open(earlier) if earlier is not None else None)
    return send_json(build_report(services.catalog.open(run_id), how=how))


@ROUTER.get("/{run_id:path}/live", summary="How far a run is that records")
def read_live(rank: RankOf) -> Live:
    try:
        steps = rank.table("steps", ("step",))["step"]
        last = int(steps[-1].as_py()) if len(steps) else 0
    except RunError:
        last = 0
    return Live(rank.state, last, shorten_stamp(stamp_rank(rank.run_path, rank.rank)))


@ROUTER.get("/{run_id:path}", summary="One run: manifests, state, and which tables are there")
def read_run(run_id: RunId, services: ServicesOf, rank: Rank = None) -> RunDetail:
    run = services.catalog.open(run_id)
    ranks = run.ranks
    chosen = _describe_rank(run.rank(rank)) if ranks or rank is not None else None
    return RunDetail(run_id, run.state, run.manifest, ranks, chosen)


def _describe_rank(rank: RankRun) -> RankItem:
    try:
        statuses = [(name, rank.status(name)) for name in sorted(TABLES)]
        tables = tuple(TableItem(name, status.state, status.reason) for name, status in statuses)
        return RankItem(rank.rank, rank.state, rank.manifest, tables)
    except RunError as error:
        return RankItem(rank.rank, "crashed", None, (), str(error))
