"""What was exported can be imported again, with the same tables and manifests; and Perfetto reads it without a fault."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import Run, open_run
from collector.format.schema.layout import rank_file, run_file
from collector.format.schema.tables import TABLES
from collector.traces.importing import import_trace
from profiler_server.report.building import build_report
from profiler_server.timeline.export import Part, export_timeline
from tests.perfetto.fetch import ENGINE
from tests.support.jobs import JobPlan, write_job
from tests.support.runs import RunPlan, build_run, slow_loader_plan
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


PLAN = replace(slow_loader_plan("read"), facts={"optimizers": [{"name": "SGD"}]})


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(build_run(tmp_path_factory.mktemp("first") / "run", PLAN))


@pytest.fixture(scope="module")
def exported(first: Run) -> bytes:
    path = first.path.parent / "run.json"
    export_timeline(first, path)
    return path.read_bytes()


def change_manifest(text: bytes, **changes: Any) -> bytes:
    """Return an export whose carried manifest says something else."""
    document = json.loads(text)
    rank = document["stepscope"]["ranks"]["0"]
    rank["manifest"] = json.dumps({**json.loads(rank["manifest"]), **changes})
    head = json.dumps(document["stepscope"], separators=(",", ":")).encode()
    return b'{"stepscope":' + head + text[text.index(b',\n"traceEvents":[') :]


def test_import_of_a_whole_export_gives_the_same_report(first: Run, tmp_path: Path) -> None:
    export_timeline(first, tmp_path / "run.json.gz")
    second = import_trace(tmp_path / "run.json.gz", tmp_path / "second")
    before, after = build_report(first), build_report(second)
    assert before["suggestions"]
    assert (before.pop("run")["state"], after.pop("run")["state"]) == ("complete", "imported")
    assert after == before


def test_import_knows_loaders_cores_threads_and_facts_and_nothing_of_the_machine(
    first: Run, exported: bytes, tmp_path: Path
) -> None:
    (tmp_path / "run.json").write_bytes(exported)
    found = import_trace(tmp_path / "run.json", tmp_path / "second").rank(0).manifest
    recorded = first.rank(0).manifest
    for name in ("loaders", "signals", "overhead", "windows", "cpu_count", "usable_cores", "torch_threads", "facts"):
        assert getattr(found, name) == getattr(recorded, name), name
    assert (found.state, found.host, found.pid, found.pid_started) == ("imported", "", 0, None)


def test_excerpt_is_judged_as_a_trace_which_is_all_that_there_is(first: Run, tmp_path: Path) -> None:
    export_timeline(first, tmp_path / "part.json", Part(steps="3-9"))
    part = import_trace(tmp_path / "part.json", tmp_path / "part").rank(0).manifest
    assert part.is_trace
    assert part.usable_cores == first.rank(0).manifest.usable_cores


@pytest.mark.parametrize(
    "changes",
    [
        {"usable_cores": float("nan")},
        {"loaders": [{"id": 0, "dataset": "d", "style": "map", "num_workers": 10**9}]},
        {"loaders": [{"id": 0, "dataset": "d", "style": ["map"]}]},
        {"windows": [{"first_step": "1", "last_step": 2, "start_ns": 0, "end_ns": 1}]},
        {"warnings": [{"code": "x", "text": "y"}] * 10_001},
        {"facts": {"long": "x" * (4 << 20)}},
    ],
)
def test_manifest_that_no_recording_writes_leaves_the_events_to_be_read(
    exported: bytes, tmp_path: Path, changes: dict[str, Any]
) -> None:
    path = tmp_path / "hostile.json"
    path.write_bytes(change_manifest(exported, **changes))
    manifest = import_trace(path, tmp_path / "second").rank(0).manifest
    assert manifest.is_trace
    assert (manifest.loaders, manifest.usable_cores) == ((), None)


def test_changed_manifest_is_taken_where_nothing_is_wrong_with_it(exported: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    window = {"first_step": 1, "last_step": 2, "start_ns": 0, "end_ns": 1, "trace_file": "../../secret"}
    path.write_bytes(change_manifest(exported, usable_cores=64, windows=[window]))
    second = import_trace(path, tmp_path / "second")
    assert json.loads(rank_file(second.path, 0).read_text())["usable_cores"] == 64
    assert second.rank(0).manifest.windows[0].trace_file is None


def test_ranks_of_two_exports_are_moved_to_one_epoch_in_every_table(first: Run, tmp_path: Path) -> None:
    other = build_run(tmp_path / "other", replace(PLAN, ranks=2))
    later = json.loads(run_file(other).read_text()) | {"epoch_unix_ns": first.manifest.epoch_unix_ns + 5_000_000}
    run_file(other).write_text(json.dumps(later))
    export_timeline(first, tmp_path / "zero.json")
    export_timeline(open_run(other), tmp_path / "one.json", Part(ranks="1"))
    both = import_trace([tmp_path / "zero.json", tmp_path / "one.json"], tmp_path / "both")
    for table in ("steps", "fetches", "queues", "stages"):
        zero, one = (both.table(table, rank=rank)["start_ns"].to_pylist() for rank in (0, 1))
        assert one == [start + 5_000_000 for start in zero], table
    windows = [both.rank(rank).manifest.windows[0].start_ns for rank in (0, 1)]
    assert windows[1] - windows[0] == 5_000_000
