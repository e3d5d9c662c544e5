"""The routes that compare runs: the parts of the step that changed, and whether the change exceeds the noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from collector.format.phases import PHASES
from collector.format.run import Run
from collector.format.schema.errors import RunError, read_or
from profiler_server.analysis.compare.comparison import (
    Comparison,
    Difference,
    LineShare,
    compare_ranks,
    summarize_comparison,
)
from profiler_server.analysis.compare.several import MOST_COMPARED, Row, compare_several, list_operators, list_phases
from profiler_server.derive.derived import AT_ONCE_SLICES, count_slices
from profiler_server.figures.charts import Chart
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
LETTERS = "BCDEFGH"
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
    there is nothing to compare, `found` is None and `notice` is set.

    `outcome` describes which advice of A was followed in B, and the effect of this advice; empty for none.
    """

    a: str
    b: str
    runs: tuple[RunEntry, ...]
    found: Comparison | None = None
    sentence: str = ""
    waterfall: Chart | None = None
    phases: tuple[Line, ...] = ()
    operators: tuple[Line, ...] = ()
    outcome: tuple[str, ...] = ()
    lines: tuple[LineShare, ...] = ()
    notice: Notice | None = None


@dataclass(frozen=True)
class Column:
    """One run beside the baseline. `id` is the run's, `letter` its short name in the tables."""

    id: str
    letter: str
    found: Comparison

    @property
    def cautions(self) -> tuple[str, ...]:
        """The cautions of the comparison, with this run's letter in place of B."""
        named = (each.replace("while B ran", f"while {self.letter} ran") for each in self.found.cautions)
        return tuple(f"{self.letter}{each[1:]}" if each.startswith("B has ") else each for each in named)


@dataclass(frozen=True)
class SeveralView:
    """The context of `compare_several.html`: the runs `columns` beside the baseline `a`. `runs` are those to choose
    from. `is_full`: no further run can be added.
    """

    a: str
    runs: tuple[RunEntry, ...]
    columns: tuple[Column, ...]
    phases: tuple[Row, ...]
    operators: tuple[Row, ...]
    is_full: bool
    notice: Notice | None = None


@ROUTER.get("/compare", include_in_schema=False)
def show_comparison(request: Request, services: ServicesOf) -> Response:
    query = request.query_params
    chosen = query.getlist("run")
    if 2 <= len(chosen) <= MOST_COMPARED:
        # The runs that are ticked in the list, newest first. The oldest run is the base of the comparison.
        return RedirectResponse(services.links.compare(*reversed(chosen)), 303)
    if chosen:
        raise BadQueryError(f"{len(chosen)} runs were chosen; choose two to {MOST_COMPARED}")
    others = list(dict.fromkeys(other for other in query.getlist("b") if other not in ("", query.get("a"))))
    shell = Shell("Compare", "/compare", dict(query))
    if len(others) < 2:
        view = _build_view(services, query.get("a", ""), others[0] if others else query.get("b", ""))
        return services.respond("compare.html", shell, **read_fields(view))
    several = _build_several(services, query.get("a", ""), others)
    return services.respond("compare_several.html", shell, **read_fields(several))


@ROUTER.get("/api/v1/compare", summary="Where the mean step of run b differs from run a's")
def read_comparison(services: ServicesOf, a: RunOf, b: RunOf, rank: Rank = None) -> Response:
    runs = services.catalog.open(a), services.catalog.open(b)
    found = compare_ranks(*(run.rank(rank) for run in runs))
    lines = read_or((), _compare_lines, *runs, rank)
    return send_json({"sentence": summarize_comparison(found), "comparison": found, "lines": lines})


@ROUTER.get("/api/v1/compare/several", summary="Where the mean steps of the runs b differ from run a's")
def read_several(
    services: ServicesOf,
    a: RunOf,
    b: Annotated[
        list[str], Query(max_length=MOST_COMPARED - 1, description="The runs to compare with the baseline a.")
    ],
    rank: Rank = None,
) -> Response:
    others = list(dict.fromkeys(b))
    found = compare_several(
        services.catalog.open(a).rank(rank), [services.catalog.open(other).rank(rank) for other in others]
    )
    return send_json({"runs": [{"run": other, "comparison": each} for other, each in zip(others, found, strict=True)]})


def _compare_lines(a: Run, b: Run, rank: int | None = None) -> tuple[LineShare, ...]:
    """Return the lines whose time changed; empty for runs that are too large to be judged at once."""
    from profiler_server.diagnosis.line_shares import compare_lines  # the rules take long to import

    is_large = max(count_slices(run.rank(rank)) for run in (a, b)) > AT_ONCE_SLICES
    return () if is_large else compare_lines(a, b, rank)


def _build_several(services: Services, a: str, others: Sequence[str]) -> SeveralView:
    runs = services.catalog.list_runs(FIRST_LOOK_S).runs[:CHOICES]
    if len(others) >= MOST_COMPARED:
        raise BadQueryError(f"{len(others) + 1} runs were chosen; choose two to {MOST_COMPARED}")
    if not a:
        raise BadQueryError("a= is missing; it names the run that the others are compared with")
    opened = [services.catalog.open(run_id) for run_id in (a, *others)]
    try:
        found = compare_several(opened[0].rank(), [run.rank() for run in opened[1:]])
    except RunError as error:
        notice = Notice("failed", "These cannot be compared", str(error))
        return SeveralView(a, runs, (), (), (), True, notice)
    return SeveralView(
        a,
        runs,
        tuple(Column(other, letter, each) for other, letter, each in zip(others, LETTERS, found, strict=False)),
        list_phases(found),
        list_operators(found),
        len(others) + 1 >= MOST_COMPARED,
    )


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
        found=found,
        sentence=summarize_comparison(found),
        waterfall=draw_waterfall(found),
        phases=_scale([part for part in found.phases if part.a_ns or part.b_ns]),
        operators=_scale(found.operators),
        outcome=services.outcomes.say(*opened),
        lines=read_or((), _compare_lines, *opened),
    )


def draw_waterfall(found: Comparison) -> Chart | None:
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
    )


def _scale(parts: Sequence[Difference]) -> tuple[Line, ...]:
    longest = max((max(part.a_ns, part.b_ns) for part in parts), default=0.0) or 1.0
    return tuple(
        Line(part, CATEGORIES.get(part.name, "host"), part.a_ns / longest, part.b_ns / longest) for part in parts
    )
