"""The Operators page: types, operators, kernels, host order, modules and roofline of the detailed windows."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from collector.format.run import RankRun, TableStatus
from collector.format.schema.errors import RunError
from collector.format.words import NO_OPERATOR
from profiler_server.analysis.operators.operator_groups import GROUPS, GroupTable, has_modules
from profiler_server.analysis.operators.operators import DeviceStep, summarize_device_steps
from profiler_server.analysis.selection import SelectedRows, select_rows
from profiler_server.figures.charts import Chart
from profiler_server.format import fill_in, format_count, format_duration, format_number_of, format_steps
from profiler_server.page import WINDOW_REMEDY, Notice, Page, PageRequest, choose_remedy, explain_import
from profiler_server.pages.operators.charts import (
    ModuleTree,
    build_chart,
    build_roofline_chart,
    build_tree,
    explain_nothing,
    explain_roof,
)
from profiler_server.pages.operators.rows import SORTABLE, Column, Row, RowBuilder, find_top_share, list_columns
from profiler_server.pages.operators.state import PAGE_SIZES, PageState, default_sort, parse_state
from profiler_server.widgets import Link

log = logging.getLogger(__name__)

LABELS: Mapping[str, str] = {
    "types": "Types",
    "operators": "Operators",
    "kernels": "Kernels",
    "host": "Host",
    "modules": "Modules",
    "roofline": "Roofline",
}
NOUNS: Mapping[str, str] = {name: label.lower() for name, label in LABELS.items()} | {
    "host": "operators",
    "roofline": "operators",
}
"""The nouns for the rows of each group."""

_WINDOW_REASON = "Operators come from a detailed window of a few steps, and this run has none so far."


@dataclass(frozen=True)
class Head:
    """The head of a column. `sorted` is its aria-sort. `query` sorts by the column, or reverses the present order."""

    column: Column
    sorted: str
    query: Mapping[str, str]


@dataclass(frozen=True)
class Grid:
    """One page of the table. `summary` says how many rows match the search, `place` which page this is. `previous` and
    `next` are URL queries, None without such a page. `hidden` are query values that the search form keeps.
    """

    heads: tuple[Head, ...]
    rows: tuple[Row, ...]
    summary: str
    previous: Mapping[str, str] | None
    next: Mapping[str, str] | None
    place: str
    sizes: tuple[Link, ...]
    hidden: Mapping[str, str]
    csv: Mapping[str, str]


@dataclass(frozen=True)
class OperatorsContext:
    """The context of `operators.html`. If `notice` says why there is no table, `chart` and `grid` are None, too."""

    state: PageState
    tabs: tuple[Link, ...]
    notice: Notice | None
    coverage: str
    definition: str
    chart: Chart | None
    chart_switch: tuple[Link, ...]
    grid: Grid | None
    executions: tuple[DeviceStep, ...]
    modules: ModuleTree | None


def build(request: PageRequest) -> OperatorsContext:
    state = parse_state(request.query, SORTABLE, request.steps)
    try:
        return _build(request.rank_run, state)
    except (pa.ArrowException, OverflowError) as error:
        log.warning("the operators of %s cannot be summed: %s", request.run_id, error)
        reason = f"They hold values that no sum can hold: {error}."
        notice = Notice("failed", f"The {NOUNS[state.group]} cannot be shown", reason)
        tabs = _list_tabs(request.rank_run, state)
        return OperatorsContext(state, tabs, notice, "", "", None, (), None, (), None)


def _build(rank: RankRun, state: PageState) -> OperatorsContext:
    group, notice = _tabulate(rank, state)
    return OperatorsContext(
        state=state,
        tabs=_list_tabs(rank, state),
        notice=notice,
        coverage=_describe_coverage(rank, group) if group else "",
        definition=_define_share(rank, group, state.group) if group else "",
        chart=_draw(rank, group, state) if group else None,
        chart_switch=tuple(
            Link(label, state.query(chart=kind), state.chart == kind)
            for kind, label in (("pie", "Pie"), ("bar", "Bars"))
        )
        if state.group != "roofline"
        else (),
        grid=_build_grid(rank, group, state) if group else None,
        executions=_list_executions(rank, state) if group else (),
        modules=build_tree(rank, state) if group else None,
    )


def _tabulate(rank: RankRun, state: PageState) -> tuple[GroupTable | None, Notice | None]:
    name = "kernels" if state.group == "kernels" else "operators"
    try:
        status = rank.status(name)
        if status.state in ("there", "empty"):
            group = GROUPS[state.group].tabulate(rank, state.steps)
            if group.rows.num_rows:
                return group, None
            if state.group == "roofline" and status.state == "there" and not state.steps:
                return None, explain_nothing(rank)
    except RunError as error:
        return None, Notice("failed", f"The {NOUNS[state.group]} cannot be read", str(error))
    return None, (explain_import(rank, name) if status.state == "empty" else None) or _explain_absence(
        rank, name, status, state
    )


def _explain_absence(rank: RankRun, name: str, status: TableStatus, state: PageState) -> Notice:
    if status.state in ("broken", "failed"):
        return Notice("failed", f"The {name} cannot be shown", status.reason)
    if status.state == "off":
        return Notice("off", "No operators", status.reason or _WINDOW_REASON, choose_remedy(rank, name, WINDOW_REMEDY))
    if state.steps and status.state == "there":
        return Notice("empty", "Nothing in these steps", "No detailed window covers the chosen steps.")
    if name == "kernels":
        return Notice(
            "empty", "No kernels", "No device work was recorded: the run used no device, or no window met it."
        )
    return Notice("empty", "No operators yet", _WINDOW_REASON, choose_remedy(rank, name, WINDOW_REMEDY))


def _draw(rank: RankRun, group: GroupTable, state: PageState) -> Chart | None:
    return (
        build_roofline_chart(rank, group)
        if state.group == "roofline"
        else build_chart(group, state, NOUNS[state.group])
    )


def _list_tabs(rank: RankRun, state: PageState) -> tuple[Link, ...]:
    """Return a link for each grouping. Modules have a link only if the trace names modules, or if they are shown."""
    try:
        modules = has_modules(rank)
    except RunError:
        modules = False
    names = [name for name in GROUPS if name != "modules" or modules or state.group == "modules"]
    return tuple(Link(LABELS[name], _switch_group(state, name), name == state.group) for name in names)


def _switch_group(state: PageState, group: str) -> dict[str, str]:
    sort, descending = default_sort(group)
    return state.query(group=group, sort=sort, descending=descending, page=1, type="", operator="")


def _describe_coverage(rank: RankRun, group: GroupTable) -> str:
    noun = fill_in("{nouns}" if len(group.steps) > 1 else "{noun}")
    covered = f"{noun} {format_steps(group.steps)}" if group.steps else f"no {noun}"
    parts = [f"Sums over {covered}"]
    if group.outside:
        parts.append(fill_in(" and what ran outside of every {noun}"))
    windows = rank.manifest.windows
    stall = sum(window.stall_ns for window in windows)
    number = "one detailed window" if len(windows) == 1 else f"{len(windows)} detailed windows"
    if windows:
        parts.append(f", recorded in {number}")
    parts.append(".")
    names = rank.table("operators", ["name"])["name"].unique().to_pylist()
    # Only device work without an operator that launched it.
    if names and all(name.startswith(NO_OPERATOR) for name in names):
        lack = explain_import(rank, "operators")
        parts.append(f" {lack.reason} {lack.remedy}" if lack else "")
    if stall:
        parts.append(f" Opening and saving cost {format_duration(stall)} of the run's time in all.")
    if windows:
        parts.append(fill_in(" A window costs time. {Nouns} inside it look a little longer than others."))
    return "".join(parts)


def _define_share(rank: RankRun, group: GroupTable, name: str) -> str:
    if name == "roofline":
        return explain_roof(rank, group)
    if name == "kernels":
        return "Share is of the time of all kernels and sums to 100 %. Copies and sets are no kernels: Operators holds them too."
    side = "device" if group.measure == "device" else "host"
    return (
        f"Share is of the {side} self time, which counts no nested call twice, so it sums to 100 %. "
        "Totals hold the callees, so they do not."
    )


def _build_grid(rank: RankRun, group: GroupTable, state: PageState) -> Grid:
    columns = list_columns(state.group, group.measure)
    selection = state.selection
    if selection.sort not in group.rows.column_names:
        sort, descending = default_sort(state.group)
        selection = replace(selection, sort=sort, descending=descending)
    selected = select_rows(group.rows, selection, GROUPS[state.group].search_in)
    builder = RowBuilder(rank, state, group, columns, find_top_share(group.rows))
    place = f"Page {selected.page} of {format_count(selected.pages)}"
    return Grid(
        heads=tuple(_build_head(column, state) for column in columns),
        rows=builder.build(selected.rows),
        summary=_summarize(selected, group.rows.num_rows, state),
        previous=state.query(page=selected.page - 1) if selected.page > 1 else None,
        next=state.query(page=selected.page + 1) if selected.page < selected.pages else None,
        place=place,
        sizes=tuple(Link(str(size), state.query(size=size, page=1), size == state.size) for size in PAGE_SIZES),
        hidden=state.query(search="", page=1),
        csv=state.query(page=1, type="", operator="", chart="pie"),
    )


def _build_head(column: Column, state: PageState) -> Head:
    if column.name != state.sort:
        return Head(column, "none", state.query(sort=column.name, descending=column.falls_first, page=1))
    sorted_ = "descending" if state.descending else "ascending"
    return Head(column, sorted_, state.query(descending=not state.descending, page=1))


def _summarize(selected: SelectedRows, rows: int, state: PageState) -> str:
    nouns = NOUNS[state.group]
    if not state.search:
        return format_number_of(rows, nouns.removesuffix("s"))
    found = f"{format_count(selected.matched)} of {format_count(rows)} {nouns} match “{state.search[:60]}”"
    if selected.loose and selected.matched:
        return f"{found} loosely: no name holds it, these hold its letters in order"
    return found


def _list_executions(rank: RankRun, state: PageState) -> tuple[DeviceStep, ...]:
    """Return the device work of each of the first 50 shown steps.

    Empty on every tab but kernels. Also empty if this work cannot be read; the table of kernels is shown nevertheless.
    """
    if state.group != "kernels":
        return ()
    try:
        steps = summarize_device_steps(rank)
    except RunError:
        return ()
    within = state.steps
    shown = [row for row in steps if within is None or within.first <= row.step <= within.last]
    return tuple(shown[:50])


PAGE = Page(
    slug="operators", title="Operators", order=30, key="p", template="operators.html", build=build, follows_steps=True
)
