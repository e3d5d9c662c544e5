"""The exported trace: valid, complete, honest about what it lacks, and laid out as Python and the page have it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import collector
from collector.format.schema import layout
from collector.format.schema.errors import OptionError, OutputError, TableBrokenError
from collector.notebook.run import Run, open_run
from collector.traces.importing import import_trace
from profiler_server.timeline.export import Part, count_export, export_timeline
from tests.support.linked_slices import HOSTILE, linked_rows
from tests.support.runs import MS, RunPlan, build_run
from tests.support.tables import stage, write_rows
from tests.unit.timeline.rows import build_slices_run, make_slice
from tests.unit.timeline.test_round_trip import check_same_tables


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return build_slices_run(tmp_path / "run", linked_rows(), RunPlan(steps=3, pin_memory=True))


def read(path: Path) -> dict[str, Any]:
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.parametrize("name", ["trace.json", "a.b.c.json", "trace.json.gz"])
def test_a_trace_holds_every_slice(run: Run, tmp_path: Path, name: str) -> None:
    report = export_timeline(run, tmp_path / name)
    events = read(tmp_path / name)["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == report.slices > 5
    assert len(events) == report.events
    assert {"aten::mm", HOSTILE, "Step 1", "Forward", "Computation"} <= {event["name"] for event in slices}
    assert {event["cat"] for event in slices if event["name"] == "Computation"} == {"computation"}  # no second kernel
    assert {event["ph"] for event in events} == {"M", "X", "C", "s", "f"}


def test_every_slice_has_its_exact_time_and_a_named_place(run: Run, tmp_path: Path) -> None:
    export_timeline(run, tmp_path / "t.json")
    text = (tmp_path / "t.json").read_text()
    assert '"ts":1.100,"dur":0.050,"name":"cudaLaunchKernel"' in text
    events = read(tmp_path / "t.json")["traceEvents"]
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"} <= named
    assert {e["pid"] for e in events if e["ph"] == "C"} <= {e["pid"] for e in events if e["name"] == "process_name"}


def test_flows_lead_from_launch_to_kernel(run: Run, tmp_path: Path) -> None:
    assert export_timeline(run, tmp_path / "t.json").flows == 1
    events = read(tmp_path / "t.json")["traceEvents"]
    kernel = next(e for e in events if e["ph"] == "X" and e["cat"] == "kernel" and e["name"].startswith("gemm"))
    launch = next(e for e in events if e["ph"] == "X" and e["name"] == "cudaLaunchKernel")
    start, end = (next(e for e in events if e["ph"] == phase) for phase in "sf")
    assert start["id"] == end["id"]
    assert all(start[key] == launch[key] for key in ("pid", "tid", "ts"))
    assert all(end[key] == kernel[key] for key in ("pid", "tid", "ts"))


def test_a_window_of_steps_says_what_it_leaves_out(tmp_path: Path) -> None:
    build_run(tmp_path / "run", RunPlan(ranks=2))
    report = export_timeline(open_run(tmp_path / "run"), tmp_path / "t.json", Part("0", "10-12"))
    trace = read(tmp_path / "t.json")
    steps = {e["name"] for e in trace["traceEvents"] if e["ph"] == "X" and e["cat"] == "step"}
    assert steps == {"Step 10", "Step 11", "Step 12"}
    assert trace["metadata"]["left_out"] == list(report.left_out)
    assert "ranks not chosen: 1" in report.left_out
    assert any("outside of the chosen steps" in text for text in report.left_out)


@pytest.mark.parametrize("path", ["missing/t.json", ".", "nul\0.json"])
def test_a_bad_path_writes_nothing(run: Run, tmp_path: Path, path: str) -> None:
    before = sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(OutputError, match="cannot be written"):
        export_timeline(run, tmp_path / path)
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.parametrize(("ranks", "steps"), [("7", None), (None, "900"), (None, "3-1"), ("x", None), (None, "1-2-3")])
def test_what_the_run_does_not_have_is_refused(run: Run, tmp_path: Path, ranks: str | None, steps: str | None) -> None:
    with pytest.raises(OptionError):
        export_timeline(run, tmp_path / "t.json", Part(ranks, steps))
    assert not (tmp_path / "t.json").exists()


def test_a_packed_trace_names_itself(run: Run, tmp_path: Path) -> None:
    export_timeline(run, tmp_path / "mine.json.gz")
    run.write_trace(tmp_path / "plain.json.gz")
    for name in ("mine.json", "plain.json"):
        header = (tmp_path / f"{name}.gz").read_bytes()[:60]
        assert header[10:].split(b"\0")[0] == name.encode()


def test_args_that_are_no_json_are_quoted(tmp_path: Path) -> None:
    rows = [
        make_slice(0, 0, 10, args='{"broken'),
        make_slice(1, 20, 10, args="{}"),
        make_slice(2, 40, 10, args='{"a":1}'),
    ]
    run = build_slices_run(tmp_path / "run", rows)
    export_timeline(run, tmp_path / "t.json")
    args = [e["args"] for e in read(tmp_path / "t.json")["traceEvents"] if e.get("cat") == "operator"]
    assert [a.get("args") for a in args] == ['{"broken', None, None]
    assert args[2]["a"] == 1


def test_damage_that_only_the_export_meets_names_the_file(tmp_path: Path) -> None:
    run = build_slices_run(tmp_path / "run", [make_slice(0, 0, 10, args='{"a":1}')])
    path = layout.table_file(run.rank(0).folder, "slices")
    group = pq.ParquetFile(path).metadata.row_group(0)
    column = next(one for one in map(group.column, range(group.num_columns)) if one.path_in_schema == "args")
    raw, at = bytearray(path.read_bytes()), column.dictionary_page_offset or column.data_page_offset
    raw[at : at + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(raw)
    with pytest.raises(TableBrokenError, match=r"slices\.parquet is damaged"):
        export_timeline(run, tmp_path / "t.json")


def test_a_stretch_holds_what_runs_in_it_and_tells_how_many_do_not(tmp_path: Path) -> None:
    rows = [make_slice(i, 1000 * i, 1500, track=i % 3 + 1) for i in range(500)]
    rows += [make_slice(500 + i, 1000 * i + 700, 10, track=9, launched_by=i) for i in range(500)]
    run = build_slices_run(tmp_path / "run", sorted(rows, key=lambda row: row["start_ns"]))
    report = export_timeline(run, tmp_path / "t.json", Part(between_ns=(100_000, 120_000)))
    events = read(tmp_path / "t.json")["traceEvents"]
    there = {(e["ts"], e["dur"]) for e in events if e["ph"] == "X" and e["name"].startswith("op ")}
    inside = [r for r in rows if r["start_ns"] < 120_000 and r["start_ns"] + r["duration_ns"] > 100_000]
    assert there == {(r["start_ns"] / 1e3, r["duration_ns"] / 1e3) for r in inside}
    assert report.flows == 20
    assert count_export(run, Part(between_ns=(100_000, 120_000))) == report.slices
    left_out = count_export(run, Part()) - report.slices
    assert f"rank 0: {left_out:,} slices outside of the chosen stretch of time" in report.left_out


Event = dict[str, Any]


@pytest.fixture
def wide(tmp_path: Path) -> Run:
    return build_slices_run(tmp_path / "wide", linked_rows(), RunPlan(steps=4, ranks=2, workers=3, pin_memory=True))


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


def test_python_and_the_command_lay_a_run_out_alike(wide: Run, tmp_path: Path) -> None:
    wide.write_trace(tmp_path / "python.json")
    export_timeline(wide, tmp_path / "command.json")
    python, command = read_places(tmp_path / "python.json"), read_places(tmp_path / "command.json")
    assert python == {key: command[key] for key in python}
    # The export adds what it works out of the slices and of the manifest.
    added = {process for process, _ in command.keys() - python.keys()}
    assert added == {"rank 0: Device, all streams"}


def test_slices_that_overlap_stand_on_the_same_rows_in_both(tmp_path: Path) -> None:
    spans = [(0, 100, 0), (50, 100, 0), (60, 10, 1), (90, 300, 0), (120, 20, 1), (140, 200, 1), (500, 10, 0)]
    rows = [make_slice(number, start, length, depth=depth) for number, (start, length, depth) in enumerate(spans)]
    wide = build_slices_run(tmp_path / "wide", rows)
    wide.write_trace(tmp_path / "python.json")
    export_timeline(wide, tmp_path / "command.json")
    python, command = read_places(tmp_path / "python.json"), read_places(tmp_path / "command.json")
    assert len([thread for _, thread in python if "(overlapping" in thread]) == 2
    assert python == {key: command[key] for key in python}


def test_every_worker_is_a_process_with_one_row_for_each_stage(wide: Run, tmp_path: Path) -> None:
    wide.write_trace(tmp_path / "t.json")
    places = read_places(tmp_path / "t.json")
    for rank in (0, 1):
        for worker in (0, 1, 2):
            rows = [thread for process, thread in places if process == f"rank {rank}: Worker {worker}"]
            assert sorted(rows) == ["collate", "read", "transform"]
        assert (f"rank {rank}: Training", "Steps") in places


def test_stages_of_the_main_process_and_of_the_user_are_processes_of_their_own(tmp_path: Path) -> None:
    path = build_run(tmp_path / "wide", RunPlan(steps=2, workers=0, operators=False))
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
    path = build_run(tmp_path / "wide", RunPlan(steps=2, operators=False))
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
def test_workers_and_ranks_that_are_taken_out_keep_their_numbers(wide: Run, tmp_path: Path, way: str) -> None:
    if way == "python":
        wide.write_trace(tmp_path / "t.json", ranks=[1], workers=[0, 2])
    else:
        report = export_timeline(wide, tmp_path / "t.json", Part("1", workers="0,2"))
        assert "rank 1: workers not chosen: 1" in report.left_out
    processes = {process for process, _ in read_places(tmp_path / "t.json")}
    assert {"rank 1: Training", "rank 1: Worker 0", "rank 1: Worker 2"} <= processes
    assert not [name for name in processes if "Worker 1" in name or "rank 0" in name]
    assert "stepscope" not in json.loads((tmp_path / "t.json").read_text())


def test_a_worker_that_is_not_there_is_an_error_that_names_those_there_are(wide: Run, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="the run has no worker 7; it has 0, 1, 2"):
        wide.write_trace(tmp_path / "t.json", workers=[0, 7])
    with pytest.raises(OptionError, match="the run has no worker 3; it has 0, 1, 2"):
        export_timeline(wide, tmp_path / "t.json", Part(workers="0-3"))
    assert not (tmp_path / "t.json").exists()


def test_what_python_writes_imports_as_the_same_tables(tmp_path: Path) -> None:
    first = open_run(build_run(tmp_path / "first", RunPlan(ranks=2)))
    first.write_trace(tmp_path / "t.json.gz")
    check_same_tables(first, import_trace(tmp_path / "t.json.gz", tmp_path / "second"))


def test_a_part_of_a_frame_is_a_trace_that_can_be_imported(wide: Run, tmp_path: Path) -> None:
    chosen = wide.spans(1, categories=["step", "phase"], steps=(2, 3))
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


def test_the_detail_steps_has_steps_and_phases_only(run: Run, tmp_path: Path) -> None:
    report = export_timeline(run, tmp_path / "t.json", Part(detail="steps"))
    events = read(tmp_path / "t.json")["traceEvents"]
    assert {e["cat"] for e in events if e["ph"] == "X"} == {"step", "phase"}
    assert any("chosen detail" in text for text in report.left_out)
