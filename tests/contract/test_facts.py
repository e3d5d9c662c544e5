"""Every fact of rank.json that code names is declared, and every one that is declared is written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from collector.format.phases import PHASE_NAMES, Bound, LineGroup, list_bound_by, list_group
from collector.format.run import Run
from collector.format.schema.facts import FACTS
from collector.format.schema.tables import TABLES
from collector.traces.importing import import_trace
from tests.contract.test_rooms import list_modules
from tests.support.traces import training_steps, write_trace

ROOT = Path(__file__).parents[2]
NAMES = [fact.name for fact in FACTS]


def list_sources(*packages: str) -> Iterator[Path]:
    for package in packages:
        yield from sorted((ROOT / package).rglob("*.py"))


def find_named(tree: ast.AST) -> Iterator[str]:
    """Yield the names of `facts["…"]`, `facts.get("…")` and `add_fact("…", …)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            owner, name = ast.unparse(node.value), node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            name = node.args[0]
            owner = {"get": ast.unparse(node.func.value), "add_fact": "facts"}.get(node.func.attr, "")
        else:
            continue
        if owner.rpartition(".")[2] == "facts" and isinstance(name, ast.Constant) and isinstance(name.value, str):
            yield name.value


def test_facts_are_declared_once() -> None:
    assert len(set(NAMES)) == len(NAMES)


def test_every_fact_that_code_names_is_declared() -> None:
    named = {
        name
        for path in list_sources("collector", "profiler_server")
        for name in find_named(ast.parse(path.read_text("utf-8")))
    }
    assert len(named) > 20
    assert named - set(NAMES) == set()


def test_every_declared_fact_is_named_by_what_records_or_reads_traces() -> None:
    declared = ROOT / "collector/format/schema/facts.py"
    text = "\n".join(path.read_text("utf-8") for path in list_sources("collector") if path != declared)
    assert [name for name in NAMES if not re.search(rf'"{name}"', text)] == []


def test_what_a_trace_gives_is_declared(tmp_path: Path) -> None:
    run = import_trace(write_trace(tmp_path / "trace.json", training_steps()), tmp_path / "run")
    assert set(run.rank().manifest.facts) <= set(NAMES)


def test_what_a_recording_gives_is_declared(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from tests.support.recording import record

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop() -> None:
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()

    record(tmp_path / "run", loop)
    assert {"optimizers", "numa_nodes"} <= set(Run(tmp_path / "run").rank().manifest.facts) <= set(NAMES)


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


def list_nullable() -> set[str]:
    """Return the columns that can be null in the table of the steps, or in each table that has them."""
    declared = [column for table in TABLES.values() for column in table.columns]
    certain = {column.name for column in declared if not column.nullable}
    steps = {column.name for column in TABLES["steps"].columns if column.nullable}
    return {column.name for column in declared} - certain | steps


def test_whoever_reads_a_column_that_can_be_null_says_what_null_is() -> None:
    nullable, silent = list_nullable(), []
    for module, path in list_modules():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "read_integers" and len(node.args) == 2:
                column = ast.unparse(node.args[1]).strip("'")
                silent += [f"{module}:{node.lineno} {column}"] if column in nullable and not node.keywords else []
    assert {"samples", "batch", "cpu_ns"} <= nullable
    assert silent == []
