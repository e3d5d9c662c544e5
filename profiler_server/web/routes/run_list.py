"""The page with the list of runs, and the route of their verdicts. The verdicts are judged after the list is shown."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.background import BackgroundTask
from starlette.responses import HTMLResponse

from collector.format.schema.errors import RunError
from collector.traces.reading import NAME_PATTERN, describe_suffixes
from profiler_server.analysis.change_points import LevelChange
from profiler_server.analysis.history import find_run_changes
from profiler_server.store.catalog import Unreadable
from profiler_server.store.headline import RunEntry
from profiler_server.store.run_query import RunPage, RunQuery, select_runs
from profiler_server.web.frontend import read_fields
from profiler_server.web.parameters import parse_number
from profiler_server.web.services import FIRST_LOOK_S, ServicesOf
from profiler_server.web.shell import STATE_LABELS, Panel, Shell

ROUTER = APIRouter()
VERDICT_LABELS = {
    "input": "Input",
    "receive": "Receiving",
    "processor": "Processors",
    "pipeline": "Pipeline",
    "transfer": "Transfer",
    "launch": "Launch",
    "compute": "Compute",
    "communication": "Communication",
    "overhead": "Overhead",
    "unknown": "Not judged",
}
SNIPPET = """from stepscope import Profiler

with Profiler("{base}/my-run") as profiler:
    train()
profiler.analyse()"""


@dataclass(frozen=True)
class Verdict:
    """What a run is bound by, as one word (`label`) and as a sentence; `kind` is the key of `label` in VERDICT_LABELS.
    A `pending` verdict is still being judged.
    """

    label: str
    sentence: str
    kind: str = ""
    pending: bool = False


@dataclass(frozen=True)
class RunLine:
    """A row of the run list. `change` is a lasting change of the step time that begins with this run, else None.

    Changes are found among all runs of the same script.
    """

    run: RunEntry
    verdict: Verdict
    change: LevelChange | None = None


@dataclass(frozen=True)
class RunList:
    """The context of `runs.html`. `lines` are the runs of the shown page, `total` is the number of all runs, `unread`
    of those that are not read yet, and `unreadable` are folders that cannot be read. `cut` says where the search for
    runs stopped early, "" if it did not. `quoted_dir` is the base directory quoted for a command. `upload_limit_bytes`
    is 0 if uploads are off.

    `upload_names` is the regular expression for names of trace files; `upload_suffixes` are the suffixes in words.
    """

    lines: tuple[RunLine, ...]
    found: RunPage
    query: RunQuery
    states: Mapping[str, str]
    total: int
    unread: int
    unreadable: tuple[Unreadable, ...]
    cut: str
    base_dir: str
    quoted_dir: str
    snippet: str
    upload_limit_bytes: int
    upload_suffixes: str
    upload_names: str


@ROUTER.get("/", include_in_schema=False)
def show_runs(request: Request, services: ServicesOf) -> HTMLResponse:
    query = parse_query(request.query_params)
    listing = services.catalog.list_runs(FIRST_LOOK_S)
    found = select_runs(listing.runs, query)
    changes = find_run_changes(listing.runs, {run.id for run in found.runs})
    base = services.catalog.name_base()
    context = RunList(
        lines=tuple(
            RunLine(run, show_verdict(run, services.diagnoses.find), changes.get(run.id)) for run in found.runs
        ),
        found=found,
        query=query,
        states=STATE_LABELS,
        total=len(listing.runs),
        unread=listing.unread,
        unreadable=listing.unreadable,
        cut=listing.cut,
        base_dir=base,
        quoted_dir=shlex.quote(base),
        snippet=SNIPPET.format(base=base),
        upload_limit_bytes=services.settings.upload_limit_bytes,
        upload_suffixes=describe_suffixes(),
        upload_names=NAME_PATTERN,
    )
    shell = Shell("Runs", "/", dict(request.query_params))
    answer = services.respond("runs.html", shell, **read_fields(context))
    # These run after the answer: both import much, and would delay the first page.
    answer.background = BackgroundTask(services.warm_up, [run for run in found.runs if run.is_read])
    return answer


@ROUTER.get("/api/v1/verdicts", tags=["runs"], summary="What runs are bound by; pending while one is being judged")
def read_verdicts(
    services: ServicesOf, run: Annotated[list[str], Query(max_length=100, description="Ids of runs.")]
) -> dict[str, Verdict]:
    listing = services.catalog.list_runs(FIRST_LOOK_S)
    entries = [entry for run_id in run if (entry := listing.find(run_id)) is not None]
    return {entry.id: show_verdict(entry, services.diagnoses.peek) for entry in entries}


def show_verdict(entry: RunEntry, find: Callable[[RunEntry], Panel | None]) -> Verdict:
    """Return the verdict of a run, or the reason why there is none; pending if `find` returns None."""
    if not entry.is_read:
        return Verdict("", "", pending=True)
    try:
        panel = find(entry)
    except RunError as error:  # the run may vanish at any moment
        panel = Panel(None, str(error))
    if panel is None:
        return Verdict("", "", pending=True)
    if panel.diagnosis is None:
        return Verdict("Not judged", panel.failure, "unknown")
    kind = panel.diagnosis.bound_by.kind
    return Verdict(VERDICT_LABELS.get(kind, kind), panel.diagnosis.sentence, kind)


def parse_query(given: Mapping[str, str]) -> RunQuery:
    return RunQuery(
        q=given.get("q", ""),
        state=given.get("state") or None,  # type: ignore[arg-type]  # checked by RunQuery
        sort=given.get("sort") or "-when",
        page=parse_number(given, "page", 1),
        page_size=parse_number(given, "page_size", RunQuery.page_size),
    )
