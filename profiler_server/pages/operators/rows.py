"""The rows of the Operators page, with what is open below them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from collector.format.run import RankRun
from profiler_server.analysis.operators.operator_groups import GROUPS, GroupTable, tabulate_members
from profiler_server.format import format_count
from profiler_server.pages.operators.columns import Cell, Column, build_cell
from profiler_server.pages.operators.details import OperatorDetail, read_operator_detail
from profiler_server.pages.operators.state import PageState, find_key, shorten_key

CHILD_LIMIT = 50
_MEMBER_GROUPS = ("types", "modules")
_OPERATOR_GROUPS = ("operators", "host")


@dataclass(frozen=True)
class Row:
    """One row. `toggle` is the query that opens or closes it, None for a row that holds nothing more.

    `level` is 1 for an operator below its type. `search` is what the timeline looks for. `note` says, on the last
    row below a type, how many are left out.
    """

    cells: tuple[Cell, ...]
    level: int
    toggle: Mapping[str, str] | None
    is_open: bool
    search: str
    detail: OperatorDetail | None = None
    note: str = ""


@dataclass(frozen=True)
class RowBuilder:
    """What every row of a table shares. `top_share_frac` fills a bar."""

    rank: RankRun
    state: PageState
    group: GroupTable
    columns: tuple[Column, ...]
    top_share_frac: float

    def build(self, rows: pa.Table) -> tuple[Row, ...]:
        """Build the rows of one page of the group, with what the URL opens."""
        key = GROUPS[self.state.group].name
        built: list[Row] = []
        opened_key = self.state.type if self.state.group in _MEMBER_GROUPS else self.state.operator
        opened = find_key(opened_key, rows[key].to_pylist())
        for values in rows.to_pylist():
            name = values[key]
            is_open = opened is not None and name == opened
            built.append(self._build_row(values, name, is_open))
            if is_open and self.state.group in _MEMBER_GROUPS:
                built.extend(self._build_members(name))
        return tuple(built)

    def _build_row(self, values: Mapping[str, Any], name: str | None, is_open: bool) -> Row:
        cells = self._build_cells(values)
        if self.state.group in _MEMBER_GROUPS:
            target = "" if is_open else shorten_key(name or "")
            return Row(cells, 0, self.state.query(type=target, operator=""), is_open, "")
        if self.state.group in _OPERATOR_GROUPS:
            return self._build_operator(values, cells, 0)
        return Row(self._link_operator(cells, values), 0, None, False, (name or "")[:200])

    def _link_operator(self, cells: tuple[Cell, ...], values: Mapping[str, Any]) -> tuple[Cell, ...]:
        owner = values.get("operator")
        if not owner:
            return cells
        at = [column.name for column in self.columns].index("operator")
        start = PageState(group="operators", steps=self.state.steps)
        linked = replace(cells[at], query=start.query(search=owner[:200], operator=shorten_key(owner)))
        return (*cells[:at], linked, *cells[at + 1 :])

    def _build_operator(self, values: Mapping[str, Any], cells: tuple[Cell, ...], level: int) -> Row:
        name = values["name"] or ""
        key = shorten_key(name)
        is_open = bool(name) and self.state.operator in (name, key)
        detail = read_operator_detail(self.rank, name, self.group.measure, self.state.steps) if is_open else None
        toggle = self.state.query(operator="" if is_open else key)
        return Row(cells, level, toggle, is_open, name[:200], detail)

    def _build_members(self, name: str) -> list[Row]:
        """Build the operators of an open type or module, the largest first."""
        members = tabulate_members(self.rank, GROUPS[self.state.group].name, name, self.group, self.state.steps)
        shown = members.slice(0, CHILD_LIMIT).to_pylist()
        key = GROUPS[self.state.group].name
        rows = [self._build_operator(row, self._build_cells({**row, key: row["name"]}), 1) for row in shown]
        left_out = members.num_rows - len(shown)
        if left_out > 0:
            note = f"{format_count(left_out)} smaller operators are not shown here; the Operators tab has all."
            rows.append(Row((), 1, None, False, "", note=note))
        return rows

    def _build_cells(self, values: Mapping[str, Any]) -> tuple[Cell, ...]:
        """Build the cells of a row; a column that means nothing for it, such as how many operators it holds, is blank."""
        return tuple(
            build_cell(column, values[column.name], self.top_share_frac)
            if column.name in values
            else Cell(column.kind, "")
            for column in self.columns
        )


def find_top_share(rows: pa.Table) -> float:
    """Return the greatest share of a table, which fills a bar."""
    return pc.max(rows["share_frac"]).as_py() or 1.0
