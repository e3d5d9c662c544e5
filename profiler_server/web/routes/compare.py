"""The routes that compare two runs: the parts of the step that changed, and whether the change exceeds the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from collector.format.phases import PHASES
from collector.format.schema.errors import RunError
from profiler_server.analysis.compare.comparison import Comparison, Difference, compare_ranks, summarize_comparison
from profiler_server.analysis.operators.operator_groups import Measure
from profiler_server.figures import Chart
from profiler_server.figures.waterfall import Fall, build_waterfall, find_base_ns
from profiler_server.format import format_difference, format_duration
from profiler_server.page import Notice
from profiler_server.store.headline import RunEntry
from profiler_server.web.answers import BadQueryError, send_json
from profiler_server.web.frontend import read_fields
from profiler_server.web.parameters import LARGEST_RANK
from profiler_server.web.services import FIRST_LOOK_S, Services, ServicesOf
from profiler_server.web.shell import Shell

ROUTER = APIRouter(tags=["runs"])
CHOICES = 500
# The colours of a part's bars. Operators are host work.
CATEGORIES = {phase.label: phase.color for phase in PHASES}
RunOf = Annotated[str, Query(max_length=1000, description="The run's path below the base directory.")]
Rank = Annotated[int | None, Query(ge=0, le=LARGEST_RANK, description="Rank of both runs; the first by default.")]


@dataclass(frozen=True)
class Line:
    """One phase or operator in runs A and B. `a_frac` and `b_frac` are its times as fractions of the longest time
    shown, for the bars.
    """

    part: Difference
    category: str
    a_frac: float
    b_frac: float


@dataclass(frozen=True)
class CompareView:
    """The context of `compare.html`. `a` and `b` are the ids of the compared runs, `runs` those to choose from. If
    there is nothing to compare, `sentence` is empty, `step` is None and `notice` is set.

    `outcome` describes which advice of A was followed in B, and the effect of this advice; empty for none.
    """

    a: str
    b: str
    runs: tuple[RunEntry, ...]
    sentence: str = ""
    total: str = ""
    cautions: tuple[str, ...] = ()
    step: Difference | None = None
    waterfall: Chart | None = None
    phases: tuple[Line, ...] = ()
    operators: tuple[Line, ...] = ()
    measure: Measure = "host"
    average: str = ""
    legend: str = ""
    noun: str = "step"
    moved: str = ""
    outcome: tuple[str, ...] = ()
    notice: Notice | None = None


@ROUTER.get("/compare", include_in_schema=False)
def show_comparison(request: Request, services: ServicesOf) -> Response:
    query = request.query_params
    chosen = query.getlist("run")
    if len(chosen) == 2:
        # The runs that are ticked in the list, newest first. The older run is the base of the comparison.
        return RedirectResponse(services.links.compare(chosen[1], chosen[0]), 303)
    if chosen:
        raise BadQueryError(f"{len(chosen)} runs were chosen; choose two")
    view = _build_view(services, query.get("a", ""), query.get("b", ""))
    return services.respond("compare.html", Shell("Compare", "/compare", dict(query)), **read_fields(view))


@ROUTER.get("/api/v1/compare", summary="Where the mean step of run b differs from run a's")
def read_comparison(services: ServicesOf, a: RunOf, b: RunOf, rank: Rank = None) -> Response:
    found = compare_ranks(services.catalog.open(a).rank(rank), services.catalog.open(b).rank(rank))
    return send_json({"sentence": summarize_comparison(found), "comparison": found})


def _build_view(services: Services, a: str, b: str) -> CompareView:
    runs = services.catalog.list_runs(FIRST_LOOK_S).runs[:CHOICES]
    if not a or not b:
        notice = Notice("empty", "Choose two runs", "A is the run to compare with, B the one to judge.")
        return CompareView(a, b, runs, notice=notice)
    opened = services.catalog.open(a), services.catalog.open(b)
    try:
        found = compare_ranks(opened[0].rank(), opened[1].rank())
    except RunError as error:
        return CompareView(a, b, runs, notice=Notice("failed", "These cannot be compared", str(error)))
    return CompareView(
        a,
        b,
        runs,
        sentence=summarize_comparison(found),
        total=f"{found.whole}: {format_duration(found.a_total_ns)} in A and {format_duration(found.b_total_ns)} in B",
        cautions=found.cautions,
        step=found.step,
        waterfall=draw_waterfall(found),
        phases=_scale([part for part in found.phases if part.a_ns or part.b_ns]),
        operators=_scale(found.operators),
        measure=found.measure,
        average=found.average,
        legend=found.legend,
        noun=found.noun,
        moved=found.moved,
        outcome=services.outcomes.say(*opened),
    )


def draw_waterfall(found: Comparison) -> Chart | None:
    """Draw the changes that lead from the mean step of A to the mean step of B, greatest change first; None if nothing
    changed.
    """
    changed = sorted((part for part in found.phases if part.shown_ns), key=lambda part: -abs(part.change_ns))
    if not changed:
        return None
    falls = [
        Fall(
            part.name.partition(" /")[0],
            part.change_ns,
            part.noise_ns,
            format_difference(part.change_ns),
            part.is_clear,
        )
        for part in changed
    ]
    base_ns = find_base_ns(found.step.a_ns, falls)
    cut = f" The axis begins at {format_duration(base_ns)}." if base_ns else ""
    return Chart(
        id="waterfall",
        title="From A to B",
        caption="What each phase adds to the mean step (red) or saves (green); hatched is not sure. "
        f"The whiskers are the 95 % interval of each change.{cut}",
        figure=build_waterfall(found.step.a_ns, found.step.b_ns, falls, ("A", "B", "mean step")),
        columns=("Phase", "Change", "Noise", "Meaning"),
        rows=tuple(
            (part.name, format_difference(part.change_ns), f"± {format_duration(part.noise_ns)}", part.meaning)
            for part in changed
        ),
        size="medium",
    )


def _scale(parts: Sequence[Difference]) -> tuple[Line, ...]:
    longest = max((max(part.a_ns, part.b_ns) for part in parts), default=0.0) or 1.0
    return tuple(
        Line(part, CATEGORIES.get(part.name, "host"), part.a_ns / longest, part.b_ns / longest) for part in parts
    )
