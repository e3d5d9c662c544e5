"""Lists of phases are derived from the rows in `collector/format/phases.py`, so that a new phase is in each of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from collector.format.phases import PHASE_NAMES, Bound, LineGroup, list_bound_by, list_group

ROOT = Path(__file__).parents[2]
DERIVED = [*map(list_bound_by, get_args(Bound)), *map(list_group, get_args(LineGroup))]


def list_literals() -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each place that lists two or more phases by name."""
    for package in ("collector", "profiler_server"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Call)):
                    parts = node.args if isinstance(node, ast.Call) else node.elts
                    names = {part.value for part in parts if isinstance(part, ast.Constant)}
                    if len(names) > 1 and names <= {*PHASE_NAMES}:
                        yield f"{path.relative_to(ROOT)}:{node.lineno}", frozenset(map(str, names))


def test_no_list_of_phases_that_a_row_says_or_that_two_places_need_is_spelled_out() -> None:
    found = list(list_literals())
    assert len(found) > 3, "the search finds nothing"
    known = {frozenset(phases) for phases in DERIVED if len(phases) > 1}
    assert [where for where, phases in found if phases in known] == []
    lists = [phases for _, phases in found]
    assert [where for where, phases in found if lists.count(phases) > 1] == []
