"""What torch.compile did, with its reasons, and that looking at it changes nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from collector import open_run
from collector.ring.compiles import CompileNote, read_compiles, write_compiles
from tests.support import forking

# In a process of its own: Dynamo's counters are global.
TRAINING = """
import json, sys, torch
torch.set_num_threads(1)
profiler = None
if sys.argv[1]:
    from collector import Profiler
    profiler = Profiler(sys.argv[1], window=None)
model = torch.nn.Linear(8, 4)

def forward(x):
    y = model(x)
    torch._dynamo.graph_break()
    return y.relu().sum()

compiled = torch.compile(forward, backend="eager")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for size in (4, 4, 4, 6, 6):
    optimizer.zero_grad()
    compiled(torch.randn(size, 8)).backward()
    optimizer.step()
if profiler is not None:
    profiler.analyse()
from torch._dynamo.utils import counters
print(json.dumps([counters["stats"], sorted(counters["graph_break"].items())]))
"""


def train(path: str) -> Any:
    command = [sys.executable, "-c", TRAINING, path]
    done = forking.run(command)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[dict[str, Any]]]:
    """Dynamo's own counters of a recorded training, and the rows of its table."""
    path = tmp_path_factory.mktemp("compiled") / "run"
    counts = train(str(path))
    return counts, open_run(path).table("compiles").to_pylist()


def test_compilations_come_with_their_steps_and_reasons(trained: tuple[Any, list[dict[str, Any]]]) -> None:
    rows = trained[1]
    found = {(row["kind"], row["step"]) for row in rows if row["name"].startswith("forward")}
    assert {("compile", 1), ("graph_break", 1), ("recompile", 4)} <= found
    again = next(row for row in rows if row["kind"] == "recompile")
    assert "size mismatch" in again["reason"]
    assert again["duration_ns"] > 0


def test_graph_breaks_are_as_many_as_dynamo_counts(trained: tuple[Any, list[dict[str, Any]]]) -> None:
    (_, breaks), rows = trained
    assert sum(count for _, count in breaks) == sum(row["kind"] == "graph_break" for row in rows) > 0
    assert all("graph_break()" in row["reason"] for row in rows if row["kind"] == "graph_break")


def test_graphs_and_breaks_are_the_same_without_the_collector(trained: tuple[Any, list[dict[str, Any]]]) -> None:
    assert train("") == trained[0]


def test_lines_are_read_once_and_damaged_ones_left_out(tmp_path: Path) -> None:
    first = CompileNote(1, "compile", 5, 2, "f (a.py:1)")
    second = CompileNote(2, "recompile", 9, 2, "f (a.py:1)", "size")
    assert read_compiles(tmp_path, 0) == ([], 0)
    write_compiles(tmp_path, [first])
    notes, offset = read_compiles(tmp_path, 0)
    assert notes == [first]
    with (tmp_path / "compiles.jsonl").open("a", encoding="utf-8") as file:
        file.write("{bad\n")
    write_compiles(tmp_path, [second])
    with (tmp_path / "compiles.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 3')
    notes, offset = read_compiles(tmp_path, offset)
    assert notes == [second]
    assert read_compiles(tmp_path, offset) == ([], offset)
