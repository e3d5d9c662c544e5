"""Where things stand in a trace: the same in what Python writes, in what the command exports, and on the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import collector
from collector.format.schema.errors import OptionError
from collector.notebook.run import Run, open_run
from collector.traces import import_trace
from profiler_server.timeline.export import Part, export_timeline
from tests.support.linked_slices import linked_rows
from tests.support.runs import MS, RunPlan, build_run
from tests.support.tables import stage, write_rows
from tests.unit.timeline.rows import build_slices_run, make_slice
from tests.unit.timeline.test_round_trip import check_same_tables

Event = dict[str, Any]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return build_slices_run(tmp_path / "run", linked_rows(), RunPlan(steps=4, ranks=2, workers=3, pin_memory=True))


def read_events(path: Path) -> list[Event]:
    events: list[Event] = json.loads(path.read_text())["traceEvents"]
    return events


def read_places(path: Path) -> dict[tuple[str, str], list[tuple[float, float, str]]]:
    """Return the slices of each process and thread by their names."""
    events = read_events(path)
    named = {(e["pid"], e["tid"], e["name"]): e["args"].get("name") for e in events if e["ph"] == "M"}
    places: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
    for event in events:
        if event["ph"] == "X":
            thread = named[event["pid"], event["tid"], "thread_name"]
            key = (named[event["pid"], 0, "process_name"], thread)
            places.setdefault(key, []).append((event["ts"], event["dur"], event["name"]))
    return {key: sorted(slices) for key, slices in places.items()}


def test_python_and_the_command_lay_a_run_out_alike(run: Run, tmp_path: Path) -> None:
    run.write_trace(tmp_path / "python.json")
    export_timeline(run, tmp_path / "command.json")
    python, command = read_places(tmp_path / "python.json"), read_places(tmp_path / "command.json")
    assert python == {key: command[key] for key in python}
    # The export adds what it works out of the slices and of the manifest.
    added = {process for process, _ in command.keys() - python.keys()}
    assert added == {"rank 0: Device, all streams"}


def test_slices_that_overlap_stand_on_the_same_rows_in_both(tmp_path: Path) -> None:
    spans = [(0, 100, 0), (50, 100, 0), (60, 10, 1), (90, 300, 0), (120, 20, 1), (140, 200, 1), (500, 10, 0)]
    rows = [make_slice(number, start, length, depth=depth) for number, (start, length, depth) in enumerate(spans)]
    run = build_slices_run(tmp_path / "run", rows)
    run.write_trace(tmp_path / "python.json")
    export_timeline(run, tmp_path / "command.json")
    python, command = read_places(tmp_path / "python.json"), read_places(tmp_path / "command.json")
    assert len([thread for _, thread in python if "(overlapping" in thread]) == 2
    assert python == {key: command[key] for key in python}


def test_every_worker_is_a_process_with_one_row_for_each_stage(run: Run, tmp_path: Path) -> None:
    run.write_trace(tmp_path / "t.json")
    places = read_places(tmp_path / "t.json")
    for rank in (0, 1):
        for worker in (0, 1, 2):
            rows = [thread for process, thread in places if process == f"rank {rank}: Worker {worker}"]
            assert sorted(rows) == ["collate", "read", "transform"]
        assert (f"rank {rank}: Training", "Steps") in places


def test_stages_of_the_main_process_and_of_the_user_are_processes_of_their_own(tmp_path: Path) -> None:
    path = build_run(tmp_path / "run", RunPlan(steps=2, workers=0, operators=False))
    rows = [stage("read", replica=-1), stage("collate", replica=-1, start_ns=60 * MS)]
    rows += [stage("Decode", replica=n, loader=None, start_ns=n * MS) for n in (0, 1)]
    write_rows(path, "stages", rows)
    open_run(path).write_trace(tmp_path / "t.json")
    places = {key for key in read_places(tmp_path / "t.json") if "Training" not in key[0]}
    assert places == {
        ("rank 0: Main process", "read"),
        ("rank 0: Main process", "collate"),
        ("rank 0: Data pipeline", "Decode 0"),
        ("rank 0: Data pipeline", "Decode 1"),
    }


@pytest.mark.parametrize("way", ["python", "command"])
def test_waits_are_grey_and_work_is_not(tmp_path: Path, way: str) -> None:
    path = build_run(tmp_path / "run", RunPlan(steps=2, operators=False))
    write_rows(path, "stages", [stage("read", kind=kind) for kind in ("work", "input_wait", "output_wait", "setup")])
    if way == "python":
        open_run(path).write_trace(tmp_path / "t.json")
    else:
        export_timeline(open_run(path), tmp_path / "t.json")
    colours = {e["name"]: e.get("cname") for e in read_events(tmp_path / "t.json") if e.get("cat") in ("stage", "wait")}
    assert colours == {
        "read": None,
        "read: wait on input queue": "grey",
        "read: wait on output queue": "grey",
        "read: set up": None,
    }


@pytest.mark.parametrize("way", ["python", "command"])
def test_workers_and_ranks_that_are_taken_out_keep_their_numbers(run: Run, tmp_path: Path, way: str) -> None:
    if way == "python":
        run.write_trace(tmp_path / "t.json", ranks=[1], workers=[0, 2])
    else:
        report = export_timeline(run, tmp_path / "t.json", Part("1", workers="0,2"))
        assert "rank 1: workers not chosen: 1" in report.left_out
    processes = {process for process, _ in read_places(tmp_path / "t.json")}
    assert {"rank 1: Training", "rank 1: Worker 0", "rank 1: Worker 2"} <= processes
    assert not [name for name in processes if "Worker 1" in name or "rank 0" in name]
    assert "stepscope" not in json.loads((tmp_path / "t.json").read_text())


def test_a_worker_that_is_not_there_is_an_error_that_names_those_there_are(run: Run, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="the run has no worker 7; it has 0, 1, 2"):
        run.write_trace(tmp_path / "t.json", workers=[0, 7])
    with pytest.raises(OptionError, match="the run has no worker 3; it has 0, 1, 2"):
        export_timeline(run, tmp_path / "t.json", Part(workers="0-3"))
    assert not (tmp_path / "t.json").exists()


def test_what_python_writes_imports_as_the_same_tables(tmp_path: Path) -> None:
    first = open_run(build_run(tmp_path / "first", RunPlan(ranks=2)))
    first.write_trace(tmp_path / "t.json.gz")
    check_same_tables(first, import_trace(tmp_path / "t.json.gz", tmp_path / "second"))


def test_a_part_of_a_frame_is_a_trace_that_can_be_imported(run: Run, tmp_path: Path) -> None:
    chosen = run.spans(1, categories=["step", "phase"], steps=(2, 3))
    assert collector.write_trace(chosen, tmp_path / "t.json") > len(chosen)
    events = [event for event in read_events(tmp_path / "t.json") if event["ph"] == "X"]
    assert sorted((round(e["ts"] * 1000), round(e["dur"] * 1000), e["name"]) for e in events) == sorted(
        zip(chosen["start"], chosen["dur"], chosen["name"], strict=True)
    )
    assert import_trace(tmp_path / "t.json", tmp_path / "imported").table("slices").num_rows == len(chosen)


def test_names_of_a_frame_may_hold_anything(tmp_path: Path) -> None:
    import pandas as pd

    names = ["a\0b", '"', "é"]
    frame = pd.DataFrame({"start": [0, 10, 20], "dur": [5, 5, 5], "name": names, "process": names, "thread": names})
    collector.write_trace(frame, tmp_path / "t.json")
    assert set(read_places(tmp_path / "t.json")) == {(name, name) for name in names}
