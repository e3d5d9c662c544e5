"""Every fact of rank.json that code names is declared, and every one that is declared is written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.format.run import Run
from collector.format.schema.facts import FACTS
from collector.traces.importing import import_trace
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
