"""The history of a script's runs: each run's step over time, where it changed for good, and what changed there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from profiler_server.analysis.change_points import LevelChange
from profiler_server.analysis.history import History, find_kind, list_histories
from profiler_server.figures.charts import Chart
from profiler_server.figures.history import COLORS, Course, Dot, Level, build_history, find_base_ns
from profiler_server.format import format_change, format_duration, shorten_middle
from profiler_server.page import Notice
from profiler_server.report.schema import pick
from profiler_server.store.catalog import find_family
from profiler_server.store.headline import RunEntry
from profiler_server.store.run_query import RunPage, RunQuery, select_runs
from profiler_server.web.answers import send_json
from profiler_server.web.frontend import format_clock, format_day, read_fields
from profiler_server.web.parameters import parse_number
from profiler_server.web.services import Services, ServicesOf
from profiler_server.web.shell import Shell
from profiler_server.web.verdicts import Turn

ROUTER = APIRouter(tags=["runs"])
MOST_RUNS = 200
"""The number of latest runs that are drawn and sent."""
MOST_FAMILIES = 200
PATIENCE_S = 3.0
"""Time for which the page waits for runs that were never read."""
MOST_TURNS = 4
"""The number of latest changes that are explained: each takes the judgement of two runs."""


@dataclass(frozen=True)
class Family:
    """Runs of one script and name to choose from. `newest` is the id of the newest of its `count` runs."""

    newest: str
    script: str
    stem: str
    count: int
    is_chosen: bool


@dataclass(frozen=True)
class Point:
    """A row of the table. `line` is the number of its line from 1, 0 for a run without steps. `previous` is the id of
    the run before it on its line, "" for none.
    """

    run: RunEntry
    line: int
    previous: str
    change: LevelChange | None = None


@dataclass(frozen=True)
class Passage:
    """A change of level, from the run `before` to the run `after`. `turn` is None for changes that are too old."""

    change: LevelChange
    before: RunEntry
    after: RunEntry
    label: str
    turn: Turn | None


@dataclass(frozen=True)
class HistoryView:
    """The context of `history.html`. `chosen` is the id of the run that was asked for, "" for none. `labels` name the
    lines, in order; a single line has the name "". `found` is the page of runs that the table shows.
    """

    chosen: str
    families: tuple[Family, ...]
    script: str
    stem: str
    chart: Chart | None
    labels: tuple[str, ...]
    passages: tuple[Passage, ...]
    points: tuple[Point, ...]
    found: RunPage | None
    notice: Notice | None


@ROUTER.get("/history", include_in_schema=False)
def show_history(request: Request, services: ServicesOf) -> Response:
    query = dict(request.query_params)
    view = _build_view(services, query.get("run", ""), query.get("script", ""), parse_number(query, "page", 1))
    return services.respond("history.html", Shell("History", "/history", query), **read_fields(view))


@ROUTER.get("/api/v1/history", summary="The steps of a script's runs over time, and where they changed for good")
def read_history(
    services: ServicesOf,
    run: Annotated[str, Query(max_length=1000, description="A run of the history; by default the newest.")] = "",
    script: Annotated[str, Query(max_length=1000, description="The script, if no run is given.")] = "",
) -> Response:
    runs = services.catalog.list_runs().runs
    chosen = _choose(services, runs, run, script)
    histories = _list_own(runs, chosen) if chosen is not None else []
    return send_json({"histories": [_describe(history) for history in histories[: len(COLORS)]]})


def _choose(services: Services, runs: Sequence[RunEntry], run_id: str, script: str) -> RunEntry | None:
    if run_id:
        services.catalog.locate(run_id)
    recorded = [run for run in runs if run.is_read and not run.manifest.is_imported]
    fits = [run for run in recorded if (run.id == run_id if run_id else not script or run.manifest.script == script)]
    return next((run for run in fits if run.headline.step_p50_ns), fits[0] if fits else None)


def _family_of(run: RunEntry) -> tuple[str, str]:
    return find_family(run.manifest.script, run.name)


def _list_own(runs: Sequence[RunEntry], chosen: RunEntry) -> list[History]:
    """Return the histories of a run's script and name, that of the run itself first."""
    own = [run for run in runs if run.is_read and _family_of(run) == _family_of(chosen)]
    return sorted(list_histories(own), key=lambda history: history.kind != find_kind(chosen))


def _build_view(services: Services, run_id: str, script: str, page: int) -> HistoryView:
    listing = services.catalog.list_runs(PATIENCE_S)
    chosen = _choose(services, listing.runs, run_id, script)
    families = _list_families(listing.runs, chosen)
    if chosen is None:
        notice = Notice("empty", "No history", _explain_none(run_id, script, listing.unread))
        return HistoryView(run_id, families, script, "", None, (), (), (), None, notice)
    own = tuple(run for run in listing.runs if run.is_read and _family_of(run) == _family_of(chosen))
    histories = _list_own(own, chosen)
    labels = _label(histories)
    found = select_runs(own, RunQuery(page=page))
    return HistoryView(
        run_id,
        families,
        *_family_of(chosen),
        _draw(histories[: len(COLORS)], labels),
        labels if len(labels) > 1 else (),
        _list_passages(services, histories, labels),
        tuple(_list_points(found.runs, histories)),
        found,
        _explain_few(histories, listing.unread),
    )


def _explain_none(run_id: str, script: str, unread: int) -> str:
    if unread:
        return f"{unread:,} runs are still being read; reload this page in a moment."
    if run_id:
        return "This run is an imported trace. A trace names no script, so it has no history."
    return f"No run here is of the script {script[:100]}." if script else "No run is recorded here yet."


def _explain_few(histories: Sequence[History], unread: int) -> Notice | None:
    if unread:
        return Notice("pending", f"{unread:,} runs are still being read", "Reload this page in a moment to see all.")
    count = max((len(history.runs) for history in histories), default=0)
    if not count:
        return Notice("empty", "No run with steps", "A run appears in the chart once it has training steps.")
    if count > 1:
        return None
    return Notice(
        "empty",
        "One run only",
        "A history has the runs of one script whose names differ by the number at their end at most, such as cnn-1 and "
        "cnn-2. A change is looked for from eight runs on.",
    )


def _list_families(runs: Sequence[RunEntry], chosen: RunEntry | None) -> tuple[Family, ...]:
    newest: dict[tuple[str, str], list[RunEntry]] = {}
    for run in runs:
        if run.is_read and not run.manifest.is_imported:
            newest.setdefault(_family_of(run), []).append(run)
    here = _family_of(chosen) if chosen is not None else None
    found = [Family(own[0].id, *family, len(own), family == here) for family, own in newest.items()]
    return tuple(sorted(found, key=lambda family: not family.is_chosen)[:MOST_FAMILIES])


def _label(histories: Sequence[History]) -> tuple[str, ...]:
    """Return a name for each history: what tells it from the others."""
    parts = [
        {
            "host": history.kind.host,
            "device": history.kind.device or "no GPU",
            "batch": f"batch size {history.kind.batch_size or 'unknown'}",
            "ranks": f"{history.kind.world_size:,} rank{'' if history.kind.world_size == 1 else 's'}",
        }
        for history in histories
    ]
    differ = [name for name in ("host", "device", "batch", "ranks") if len({part[name] for part in parts}) > 1]
    return tuple(", ".join(part[name] for name in differ) for part in parts)


def _draw(histories: Sequence[History], labels: Sequence[str]) -> Chart | None:
    latest = sorted((run for history in histories for run in history.runs), key=_find_time)[-MOST_RUNS:]
    if not latest:
        return None
    places = {run.id: place for place, run in enumerate(latest)}
    courses = [_build_course(history, label, places) for history, label in zip(histories, labels, strict=False)]
    base_ns = find_base_ns(courses)
    cut = f" The axis begins at {format_duration(base_ns)}." if base_ns else ""
    return Chart(
        id="history",
        title="Median step of each run",
        caption="Each dot is a run, oldest first; its whisker goes from the 10th to the 90th percentile of its steps. An "
        f"open dot had uncommitted changes. Dashed lines are the levels on both sides of a lasting change.{cut}",
        figure=build_history(courses, [_name_tick(run) for run in latest]),
        columns=("Run", "When", "Commit", "Median step", "p10", "p90"),
        rows=tuple(_tell(run) for run in reversed(latest)),
        size="tall",
    )


def _find_time(run: RunEntry) -> tuple[int, str]:
    return run.manifest.created_unix_ns, run.id


def _name_tick(run: RunEntry) -> tuple[str, ...]:
    day = format_day(run.manifest.created_unix_ns)
    return (day, run.headline.setup.commit[:7]) if run.headline.setup.commit else (day,)


def _tell(run: RunEntry) -> tuple[str, ...]:
    low_ns, high_ns = run.headline.step_range_ns or (None, None)
    times = (format_duration(run.headline.step_p50_ns), format_duration(low_ns), format_duration(high_ns))
    return (shorten_middle(run.name), format_clock(run.manifest.created_unix_ns), _name_commit(run), *times)


def _name_commit(run: RunEntry) -> str:
    setup = run.headline.setup
    return f"{setup.short_commit}{' with changes' if setup.is_dirty else ''}" if setup.commit else "unknown"


def _build_course(history: History, label: str, places: dict[str, int]) -> Course:
    drawn = [run for run in history.runs if run.id in places]
    dots = []
    for run in drawn:
        step_ns = run.headline.step_p50_ns or 0.0
        low_ns, high_ns = run.headline.step_range_ns or (step_ns, step_ns)
        text = (run.name, format_clock(run.manifest.created_unix_ns), f"commit {_name_commit(run)}")
        dots.append(Dot(places[run.id], step_ns, low_ns, high_ns, text, run.headline.setup.is_dirty))
    return Course(label or "runs", dots, tuple(_list_levels(history, places)))


def _list_levels(history: History, places: dict[str, int]) -> list[Level]:
    found = []
    changes = history.changes
    for at, change in enumerate(changes):
        end = changes[at + 1].at if at + 1 < len(changes) else len(history.runs)
        spans = [(change.at - change.before, change.at, change.before_ns, None)] if at == 0 else []
        for first, last, step_ns, frac in (*spans, (change.at, end, change.after_ns, change.change_frac)):
            inside = [places[run.id] for run in history.runs[first:last] if run.id in places]
            if inside:
                found.append(Level(inside[0], inside[-1], step_ns, frac))
    return found


def _list_passages(services: Services, histories: Sequence[History], labels: Sequence[str]) -> tuple[Passage, ...]:
    found = [
        (history.runs[change.at - 1], history.runs[change.at], change, label)
        for history, label in zip(histories, labels, strict=True)
        for change in history.changes
    ]
    found.sort(key=lambda each: _find_time(each[1]), reverse=True)
    return tuple(
        Passage(
            change,
            before,
            after,
            label if len(histories) > 1 else "",
            services.outcomes.explain(before.id, after.id) if at < MOST_TURNS else None,
        )
        for at, (before, after, change, label) in enumerate(found)
    )


def _list_points(runs: Sequence[RunEntry], histories: Sequence[History]) -> list[Point]:
    known: dict[str, Point] = {}
    for line, history in enumerate(histories, 1):
        changes = {change.at: change for change in history.changes}
        for at, run in enumerate(history.runs):
            previous = history.runs[at - 1].id if at else ""
            known[run.id] = Point(run, line, previous, changes.get(at))
    return [known.get(run.id, Point(run, 0, "")) for run in runs]


def _describe(history: History) -> dict[str, Any]:
    latest = history.runs[-MOST_RUNS:]
    skipped = len(history.runs) - len(latest)
    return {
        "kind": history.kind,
        "shown": len(latest),
        "total": len(history.runs),
        "runs": [_describe_run(run) for run in latest],
        "changes": [
            {
                "since": history.runs[change.at].id,
                **pick(change),
                "text": format_change(change.change_frac),
            }
            for change in history.changes
            if change.at >= skipped
        ],
    }


def _describe_run(run: RunEntry) -> dict[str, Any]:
    headline = run.headline
    return {
        "id": run.id,
        "state": run.shown_state,
        "created_unix_ns": run.manifest.created_unix_ns,
        "commit": headline.setup.commit,
        "is_dirty": headline.setup.is_dirty,
        "steps": headline.steps,
        "step_p50_ns": headline.step_p50_ns,
        "step_mean_ns": headline.step_mean_ns,
        "step_range_ns": headline.step_range_ns,
    }
