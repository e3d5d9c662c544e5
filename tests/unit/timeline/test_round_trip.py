"""What was exported can be imported again, with the same tables; and Perfetto reads it without a fault."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from collector.format.run import Run, open_run
from collector.format.schema.tables import TABLES
from collector.traces import import_trace
from profiler_server.timeline.export import Part, export_timeline
from tests.perfetto.fetch import ENGINE
from tests.support.jobs import JobPlan, write_job
from tests.support.runs import RunPlan, build_run
from tests.support.traces import find_sample, training_steps, write_trace

QUERY = Path(__file__).parents[2] / "perfetto/query.mjs"
FAULTS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"


@pytest.fixture
def engine() -> Path:
    """The folder of Perfetto's WebAssembly build."""
    folder = Path(os.environ.get("PERFETTO_ENGINE", ENGINE))
    if not (folder / "engine.mjs").is_file() or not shutil.which("node"):
        pytest.skip("Perfetto's trace processor or node is missing: run `python tests/perfetto/fetch.py`")
    return folder


def check_same_tables(first: Run, second: Run) -> None:
    assert first.ranks == second.ranks
    for rank in first.ranks:
        for name in TABLES:
            known = first.rank(rank).status(name).state in ("there", "empty")
            assert known == (second.rank(rank).status(name).state in ("there", "empty")), name
            if known:
                assert first.table(name, rank).to_pylist() == second.table(name, rank).to_pylist(), name


@pytest.mark.parametrize("name", ["simple_add.json.gz", "vit_mi300.json.gz", "two_rank_0.json.gz"])
def test_sample_that_was_exported_imports_as_the_same_tables(tmp_path: Path, name: str) -> None:
    first = import_trace(find_sample(name), tmp_path / "first")
    export_timeline(first, tmp_path / "t.json.gz")
    check_same_tables(first, import_trace(tmp_path / "t.json.gz", tmp_path / "second"))


def test_recorded_run_of_two_ranks_imports_as_the_same_tables(tmp_path: Path) -> None:
    build_run(tmp_path / "first", RunPlan(ranks=2))
    first = open_run(tmp_path / "first")
    export_timeline(first, tmp_path / "t.json")
    second = import_trace(tmp_path / "t.json", tmp_path / "second")
    check_same_tables(first, second)
    assert second.state == "imported"


def test_window_of_steps_imports_as_the_rows_of_those_steps(tmp_path: Path) -> None:
    first = import_trace(write_trace(tmp_path / "t.json", training_steps(5)), tmp_path / "first")
    export_timeline(first, tmp_path / "window.json", Part(steps="2-3"))
    second = import_trace(tmp_path / "window.json", tmp_path / "second")
    assert {row["step"] for row in second.table("operators").to_pylist()} == {2, 3}
    whole = [row for row in first.table("operators").to_pylist() if row["step"] in (2, 3)]
    assert second.table("operators").to_pylist() == whole


def test_window_of_ranks_imports_as_those_ranks(tmp_path: Path) -> None:
    build_run(tmp_path / "first", RunPlan(ranks=3))
    first = open_run(tmp_path / "first")
    export_timeline(first, tmp_path / "t.json.gz", Part(ranks="1-2", steps="2-4"))
    second = import_trace(tmp_path / "t.json.gz", tmp_path / "second")
    assert list(second.ranks) == [1, 2]
    for rank in second.ranks:
        for name in ("steps", "phases", "fetches"):
            whole = [row for row in first.table(name, rank).to_pylist() if row["step"] in (2, 3, 4)]
            found = [row for row in second.table(name, rank).to_pylist() if row["step"] in (2, 3, 4)]
            assert found == whole, name


def test_events_are_read_where_the_tables_are_damaged_or_steps_set_by_hand(tmp_path: Path) -> None:
    first = import_trace(write_trace(tmp_path / "t.json", training_steps(5)), tmp_path / "first")
    export_timeline(first, tmp_path / "out.json")
    content = (tmp_path / "out.json").read_bytes()
    (tmp_path / "bad.json").write_bytes(content.replace(b'"tables":{', b'"tables":{"steps":"AAAA",', 1))
    for name, steps_from in (("bad", None), ("out", "aten::linear")):
        read = import_trace(tmp_path / f"{name}.json", tmp_path / f"run-{name}", steps_from=steps_from)
        assert "aten::linear" in read.table("slices")["name"].to_pylist()


@pytest.mark.parametrize("name", ["simple_add.json.gz", "vit_mi300.json.gz", "resnet50_v100_workers0.pt.trace.json.gz"])
def test_perfetto_reads_every_slice_without_a_fault(tmp_path: Path, engine: Path, name: str) -> None:
    run = import_trace(find_sample(name), tmp_path / "run")
    report = export_timeline(run, tmp_path / "t.json")
    command = ["node", str(QUERY), str(engine), str(tmp_path / "t.json"), "select count(*) from slice", FAULTS]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert json.loads(found.stdout.splitlines()[-1]) == [[[report.slices]], []]


def test_perfetto_reads_ranks_on_one_clock_as_a_process_each(tmp_path: Path, engine: Path) -> None:
    plan = JobPlan(ranks=3, steps=6, ranks_per_host=1, apart_ns=3.6e12, drift=2e-5)
    report = export_timeline(open_run(write_job(tmp_path / "run", plan)), tmp_path / "t.json", Part(one_clock=True))
    ranks = "select name from process where name is not null order by name"
    command = ["node", str(QUERY), str(engine), str(tmp_path / "t.json"), "select count(*) from slice", ranks, FAULTS]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    names = [["rank 0"], ["rank 1"], ["rank 2"]]
    assert json.loads(found.stdout.splitlines()[-1]) == [[[report.slices]], names, []]
