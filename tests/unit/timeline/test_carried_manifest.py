"""An export carries what was noted of its ranks, so that its import is judged as the run itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import Run, open_run
from collector.format.schema.layout import rank_file, run_file
from collector.traces import import_trace
from profiler_server.report.building import build_report
from profiler_server.timeline.export import Part, export_timeline
from tests.support.runs import build_run, slow_loader_plan

PLAN = replace(slow_loader_plan("read"), facts={"optimizers": [{"name": "SGD"}]})


@pytest.fixture
def first(tmp_path: Path) -> Run:
    return open_run(build_run(tmp_path / "run", PLAN))


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


def test_import_knows_loaders_cores_threads_and_facts_and_nothing_of_the_machine(first: Run, tmp_path: Path) -> None:
    export_timeline(first, tmp_path / "run.json")
    found = import_trace(tmp_path / "run.json", tmp_path / "second").rank(0).manifest
    recorded = first.rank(0).manifest
    for name in ("loaders", "signals", "overhead", "windows", "cpu_count", "usable_cores", "torch_threads", "facts"):
        assert getattr(found, name) == getattr(recorded, name), name
    assert (found.state, found.host, found.pid, found.pid_started) == ("imported", "", 0, None)


def test_import_of_an_import_is_the_same_again(first: Run, tmp_path: Path) -> None:
    export_timeline(first, tmp_path / "one.json")
    second = import_trace(tmp_path / "one.json", tmp_path / "second")
    export_timeline(second, tmp_path / "two.json")
    third = import_trace(tmp_path / "two.json", tmp_path / "third")
    assert third.rank(0).manifest.loaders == first.rank(0).manifest.loaders
    assert not third.rank(0).manifest.is_trace


def test_excerpt_is_judged_as_a_trace_which_is_all_that_there_is(first: Run, tmp_path: Path) -> None:
    export_timeline(first, tmp_path / "part.json", Part(steps="3-9"))
    part = import_trace(tmp_path / "part.json", tmp_path / "part").rank(0).manifest
    assert part.is_trace
    assert part.usable_cores == first.rank(0).manifest.usable_cores


@pytest.mark.parametrize(
    "changes",
    [
        {"usable_cores": float("nan")},
        {"torch_threads": -1},
        {"cpu_count": 10**9},
        {"loaders": [{"id": 0, "dataset": "d", "style": "map", "num_workers": 10**9}]},
        {"loaders": [{"id": 0, "dataset": "d", "style": ["map"]}]},
        {"loaders": [{"id": 0, "dataset": "d" * 5000, "style": "map"}]},
        {"loaders": ["none"]},
        {"windows": [{"first_step": "1", "last_step": 2, "start_ns": 0, "end_ns": 1}]},
        {"signals": [{"name": "window", "state": {}}]},
        {"warnings": [{"code": "x", "text": "y"}] * 10_001},
        {"overhead": {"share_frac": "all"}},
        {"facts": {"long": "x" * (4 << 20)}},
    ],
)
def test_manifest_that_no_recording_writes_leaves_the_events_to_be_read(
    first: Run, tmp_path: Path, changes: dict[str, Any]
) -> None:
    export_timeline(first, tmp_path / "run.json")
    path = tmp_path / "hostile.json"
    path.write_bytes(change_manifest((tmp_path / "run.json").read_bytes(), **changes))
    manifest = import_trace(path, tmp_path / "second").rank(0).manifest
    assert manifest.is_trace
    assert (manifest.loaders, manifest.usable_cores) == ((), None)


def test_changed_manifest_is_taken_where_nothing_is_wrong_with_it(first: Run, tmp_path: Path) -> None:
    export_timeline(first, tmp_path / "run.json")
    path = tmp_path / "other.json"
    window = {"first_step": 1, "last_step": 2, "start_ns": 0, "end_ns": 1, "trace_file": "../../secret"}
    path.write_bytes(change_manifest((tmp_path / "run.json").read_bytes(), usable_cores=64, windows=[window]))
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
