"""All runs as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query

from collector.format.schema.errors import RunError
from profiler_server.store.catalog import Unreadable
from profiler_server.store.headline import ListState, RunEntry
from profiler_server.store.run_query import PAGE_SIZE, PAGE_SIZE_LIMIT, RunQuery, select_runs
from profiler_server.web.parameters import check_page
from profiler_server.web.services import Services, ServicesOf

ROUTER = APIRouter(prefix="/api/v1/runs", tags=["runs"])


@dataclass(frozen=True)
class RunItem:
    """One run. Times are ns, shares are fractions, absent is null; `delta_frac` is against the run `previous_id`."""

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
    """How the job stands still while it records, a sentence; empty where it gets on."""
    end: str
    """How the job ended before its scripts were through, a sentence; empty until that is judged, and for all others."""


@dataclass(frozen=True)
class RunItems:
    """A page of runs; `cut` says where the search for runs stopped, empty when it saw all."""

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
    page: Annotated[int, Query(ge=1, le=10**9)] = 1,
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
    """Return how a job ended if that is known; else have it judged."""
    if entry.shown_state not in ("failed", "crashed"):
        return ""
    try:
        panel = services.diagnoses.peek(entry)
    except RunError:  # the run may vanish at any moment
        return ""
    return panel.diagnosis.end if panel is not None and panel.diagnosis is not None else ""
