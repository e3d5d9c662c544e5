"""The pages of a run, `/runs/{id}/` and `/runs/{id}/{slug}`, where an id may contain slashes; and the request for a
detailed window.

Pages send no other request to a recording run.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from fastapi import APIRouter, Body, Form, HTTPException, Request
from starlette.responses import RedirectResponse, Response

from collector.format.lens import StepRange, parse_range
from collector.format.run import RankRun, Run
from collector.format.schema.control import MOST_FIRST, MOST_STEPS, WindowRequest, write_control
from collector.format.schema.errors import OutputError, RunNotFoundError, StepscopeError
from profiler_server.analysis.steps.step_figures import find_step_span
from profiler_server.format import fill_in, form_plural, speak_of
from profiler_server.page import Page, PageRequest
from profiler_server.store.mirror import find_mirror
from profiler_server.web.answers import BadQueryError, NotInRunError, describe_error
from profiler_server.web.frontend import read_fields
from profiler_server.web.links import KeptLinks, encode_query
from profiler_server.web.parameters import RunId
from profiler_server.web.services import Services, ServicesOf
from profiler_server.web.shell import Shell, StepFilter, build_nav, build_run_view

ROUTER = APIRouter()
log = logging.getLogger(__name__)


@ROUTER.get("/runs/{path:path}", include_in_schema=False)
def show_page(path: str, request: Request, services: ServicesOf) -> Response:
    """Show a page of a run; an unknown page gives an error page. Raises RunNotFoundError for an unknown run."""
    query = dict(request.query_params)
    run_id, _, slug = path.rpartition("/")
    try:
        run = services.catalog.open(run_id)
    except RunNotFoundError:
        if not slug:
            raise
        # A run's address without its slash at the end; and a run whose own name looks like a page.
        services.catalog.locate(path)
        return RedirectResponse(services.links.page(path) + encode_query(query), 307)
    is_page = not slug or services.pages.find(slug) is not None or services.pages.find_broken(slug) is not None
    if not is_page and _is_run(services, path):
        return RedirectResponse(services.links.page(path) + encode_query(query), 307)
    return _show(services, run, PageAddress(run_id, slug, request.url.path, query))


def _is_run(services: Services, run_id: str) -> bool:
    try:
        services.catalog.locate(run_id)
    except RunNotFoundError:
        return False
    return True


@dataclass(frozen=True)
class PageAddress:
    """The target of a request for a page: the run, the page (`slug`, "" for Overall), and path and query of the URL."""

    run_id: str
    slug: str
    path: str
    query: Mapping[str, str]


def _show(services: Services, run: Run, at: PageAddress) -> Response:
    ranks = run.ranks
    rank = choose_rank(at.query.get("rank"), ranks)
    page = services.pages.find(at.slug)
    steps, problem = choose_steps(run.rank(rank), at.query.get("steps", ""))
    query = {name: value for name, value in at.query.items() if name != "steps"}
    if steps is not None:
        query["steps"] = str(steps)
    at, there = replace(at, query=query), find_step_span(run.rank(rank))
    with speak_of(there.noun if there else "step"):
        return _respond(services, run, at, page, (rank, steps, problem))


def _respond(
    services: Services, run: Run, at: PageAddress, page: Page | None, chosen: tuple[int, StepRange | None, str]
) -> Response:
    rank, steps, problem = chosen
    shell = _build_shell(services, run, at, rank, page)
    shell = replace(shell, steps=_view_filter(run.rank(rank), steps, problem, page))
    if page is None:
        broken = services.pages.find_broken(at.slug)
        error = describe_error(broken.error if broken else NotInRunError(f"There is no page {at.slug[:60]!r}"))
        return services.respond("error.html", shell, 500 if broken else error.status, error=error)
    try:
        built = page.build(page.ask(PageRequest(run, at.run_id, rank, run.ranks, at.query, steps)))
        return services.respond(page.template, shell, **read_fields(built))
    except StepscopeError as error:
        view = describe_error(error)
    except Exception as error:  # One page that fails must leave the run's other pages reachable.
        log.exception("the page %r of %s failed", page.slug, run.path)
        view = describe_error(error)
    return services.respond("error.html", shell, view.status, error=view)


def _build_shell(services: Services, run: Run, at: PageAddress, rank: int, page: Page | None) -> Shell:
    links = KeptLinks(services.links, at.run_id, rank if "rank" in at.query else None, at.query.get("steps"))
    panel = services.diagnoses.judge(run, rank)
    tried = services.outcomes.say_trials(at.run_id, run, panel) if not at.slug else {}
    return Shell(
        title=fill_in(page.title) if page else at.slug.capitalize(),
        path=at.path,
        query=at.query,
        run=build_run_view(run, at.run_id, rank),
        slug=at.slug,
        rank=rank,
        ranks=run.ranks,
        nav=build_nav(services.pages, links, at.run_id, at.slug),
        panel=panel,
        outcome=services.outcomes.peek(at.run_id) if not at.slug else None,
        track_records=services.outcomes.say_track_records() if not at.slug else {},
        tried=tried,
        links=links,
    )


def choose_steps(rank: RankRun, text: str) -> tuple[StepRange | None, str]:
    """Read the step filter `text`. Return its steps, None for all steps; and the reason if the steps that it names
    cannot be shown, else "".
    """
    if not text.strip():
        return None, ""
    chosen, there = parse_range(text), find_step_span(rank)
    if there is None:
        return None, "This rank has no steps to choose from. All that it recorded is shown."
    noun, nouns = there.noun, form_plural(there.noun)
    if chosen is None:
        return None, f"“{text[:40]}” is no range of {nouns} such as 10-40. All {nouns} are shown."
    if chosen.last < there.first or chosen.first > there.last:
        span = f"{there.first:,} to {there.last:,}"
        return None, f"No {noun} of {text[:40]} was recorded: there are {nouns} {span}. All {nouns} are shown."
    return chosen, ""


def _view_filter(rank: RankRun, steps: StepRange | None, problem: str, page: Page | None) -> StepFilter:
    there = find_step_span(rank)
    total = f"{there.first:,}–{there.last:,}" if there else ""
    follows = page is not None and page.follows_steps
    return StepFilter(str(steps or ""), total, problem, follows, there.noun if there else "step")


def choose_rank(text: str | None, ranks: tuple[int, ...]) -> int:
    """Return the rank that a query requests; without a request, the first. Raises BadQueryError or RunNotFoundError."""
    if not ranks:
        raise RunNotFoundError("This run has no rank folder yet; it shows as soon as the first rank writes")
    if text is None or text == "":
        return ranks[0]
    if not (text.isascii() and text.isdigit() and len(text) <= 7):
        raise BadQueryError(f"rank={text[:40]!r} is not a rank; this run has {_name_ranks(ranks)}")
    if int(text) not in ranks:
        raise NotInRunError(f"There is no rank {text}; this run has {_name_ranks(ranks)}")
    return int(text)


def _name_ranks(ranks: tuple[int, ...]) -> str:
    return f"ranks {ranks[0]} to {ranks[-1]}" if len(ranks) > 1 else f"rank {ranks[0]} only"


@ROUTER.post(
    "/api/v1/runs/{run_id:path}/window",
    tags=["runs"],
    summary="Take a detailed window of a run that records",
    status_code=202,
)
def order_window(
    run_id: RunId,
    services: ServicesOf,
    first: Annotated[int, Body(ge=0, le=MOST_FIRST, description="Step; one that has passed means the next.")],
    count: Annotated[int, Body(ge=1, le=MOST_STEPS, description="How many steps.")] = 3,
) -> dict[str, int | str]:
    """Order a detailed window of steps from `first` on every rank. 409 if the run does not record, or takes no windows."""
    return _order(services, run_id, WindowRequest(first, count))


@ROUTER.post("/runs/{run_id:path}/window", include_in_schema=False)
def order_window_from_page(
    run_id: RunId,
    services: ServicesOf,
    count: Annotated[int, Form(ge=1, le=MOST_STEPS)],
    first: Annotated[int, Form(ge=0, le=MOST_FIRST)] = 0,
    rank: int | None = None,
) -> Response:
    """Order a window from the form of the Step trace page, and return to the page."""
    _order(services, run_id, WindowRequest(first, count))
    return RedirectResponse(services.links.page(run_id, "steps", rank) + "#window", 303)


def _order(services: Services, run_id: str, request: WindowRequest) -> dict[str, int | str]:
    run = services.catalog.open(run_id)
    if run.state != "recording":
        raise HTTPException(409, f"{run_id} is {run.state}: a window can only be taken while a run records")
    if find_mirror(run.path) is not None:
        raise HTTPException(
            409, f"{run_id} lies behind a URL; ask on the host that records it, by profiler/control.json"
        )
    signal = next((entry for entry in run.rank().manifest.signals if entry.name == "window"), None)
    if signal is not None and signal.state in ("off", "failed"):
        raise HTTPException(409, f"{run_id} takes no detailed windows: {signal.reason}")
    try:
        write_control(run.path, request)
    except OSError as error:
        raise OutputError(f"the window of {run_id} cannot be ordered ({error.strerror or error})") from None
    return {"first": request.first, "count": request.count, "file": "profiler/control.json"}
