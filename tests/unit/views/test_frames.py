"""A run in Python: frames of spans, operators by name, traces and figures."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import collector
from collector.format.run import Run, open_run
from collector.format.schema.errors import OptionError, OutputError, TableMissingError
from collector.format.schema.tables import TABLES
from collector.traces.importing import import_trace
from collector.views.frames import OPTIONAL, SCHEMA, make_frame
from profiler_server.analysis.device.executions import summarize_device_steps
from tests.support.recording import record as record_loop
from tests.support.runs import RunPlan, build_run
from tests.support.traces import call, copy, find_sample, kernel, step, write_trace


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return open_run(build_run(tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture(scope="module")
def device_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    sample = find_sample("resnet50_v100_workers0.pt.trace.json.gz")
    return import_trace(sample, tmp_path_factory.mktemp("imported") / "run")


def test_spans_have_the_columns_of_the_definition_in_order_of_start(run: Run) -> None:
    frame = run.spans()
    assert list(frame.columns) == SCHEMA.names
    assert frame.start.is_monotonic_increasing
    assert (frame.end - frame.start == frame.dur).all()
    assert frame.span_id.is_unique
    phases = frame[frame.cat == "phase"]
    steps = frame[frame.cat == "step"].set_index("span_id")
    assert set(phases.parent_span_id) <= set(steps.index)
    assert phases.groupby("parent_span_id").dur.sum().to_dict() == steps.dur.to_dict()


def test_whole_numbers_that_may_be_absent_stay_whole(run: Run) -> None:
    spans = run.spans()
    assert {name for name in spans.columns if spans[name].dtype == pd.Int64Dtype()} == OPTIONAL
    assert spans.step.isna().any()
    assert not [name for name in spans.columns if spans[name].dtype == float]
    slices = run.frame("slices")
    assert {slices[name].dtype for name in ("parent", "step", "launched_by")} == {pd.Int64Dtype()}
    assert slices.start_ns.dtype == np.int64
    assert list(slices.columns) == list(TABLES["slices"].column_names)


def test_an_id_that_a_float_would_round_is_kept() -> None:
    long = (1 << 53) + 1
    frame = make_frame(pa.table({"id": [1, 2], "parent": [None, long], "ratio": [0.5, None]}), ["parent", "ratio"])
    assert list(frame.columns) == ["id", "parent", "ratio"]
    assert frame.parent[1] == long
    assert frame.parent[0] is pd.NA
    assert frame.ratio.dtype == float


def test_operators_are_numbered_in_order_of_start(run: Run) -> None:
    operators = run.spans(categories="operator")
    assert operators.operator_index.tolist() == list(range(len(operators)))
    assert run.spans(categories=["step", "phase"]).operator_index.isna().all()


def test_host_and_device_are_chosen_apart(device_run: Run) -> None:
    device = device_run.spans(activities="device")
    host = device_run.spans(activities="cpu")
    assert {"kernel", "memcpy"} <= set(device.cat)
    assert not {"kernel", "memcpy"} & set(host.cat)
    assert device.stream.notna().all()
    assert host.stream.isna().all()
    assert len(device) + len(host) == len(device_run.spans())
    first = int(device.step.min())
    kernels = device_run.spans(categories="kernel", steps=(first, first + 1))
    assert set(kernels.step) == {first, first + 1}
    assert set(device_run.spans(categories="kernel", steps=first).step) == {first}


def test_what_is_not_known_is_rejected_by_name(run: Run) -> None:
    with pytest.raises(OptionError, match="category 'kernels'; did you mean 'kernel'"):
        run.spans(categories="kernels")
    with pytest.raises(OptionError, match="activity 'gpu'"):
        run.spans(activities="gpu")
    with pytest.raises(OptionError, match=r"operator 'aten::conv_backward'; did you mean"):
        run.operator("aten::conv_backward")
    with pytest.raises(OptionError, match="figure 'pie'"):
        run.figure("pie")


def test_an_operator_is_summed_by_input_shape(device_run: Run) -> None:
    found = device_run.operator("aten::cudnn_convolution")
    rows = device_run.frame("operators")
    rows = rows[rows.name == found.name]
    assert (found.count, found.total_ns) == (rows["count"].sum(), rows.total_ns.sum())
    assert found.shapes["count"].sum() == found.count
    assert found.mean_ns == pytest.approx(found.total_ns / found.count)
    assert "calls" in str(found)


def test_device_executions_agree_with_the_server_and_never_wait_less_than_nothing(device_run: Run) -> None:
    found = device_run.device_executions()
    expected = summarize_device_steps(device_run.rank())
    assert found.step.tolist() == [row.step for row in expected]
    assert found.busy_ns.tolist() == [row.busy_ns for row in expected]
    assert (found.wait_ns >= 0).all()
    assert (found.total_ns == found.busy_ns + found.wait_ns).all()


def test_an_annotation_on_a_stream_is_no_work_of_the_device(tmp_path: Path) -> None:
    on_stream = {**kernel("ProfilerStep#1", 5, 80, 0), "cat": "gpu_user_annotation"}
    waiting = {**kernel("Stream Wait Event", 30, 30, 0), "cat": "cuda_sync"}
    events = [step(1, 0, 100), call(2, 1, 1), call(4, 1, 2), on_stream, waiting]
    events += [kernel("first", 10, 10, 1), copy(70, 10, 2), kernel("ncclDevKernel_AllReduce", 15, 10, 2, stream=9)]
    found = import_trace(write_trace(tmp_path / "trace.json", events), tmp_path / "run").device_executions()
    assert found[["count", "total_ns", "busy_ns", "wait_ns"]].values.tolist() == [[3, 70_000, 25_000, 45_000]]


@pytest.mark.parametrize("name", ["trace.json", "a.b.c.json", "my.run.json.gz", "no_suffix"])
def test_a_trace_is_written_to_any_path(run: Run, tmp_path: Path, name: str) -> None:
    count = run.write_trace(tmp_path / name)
    data = (tmp_path / name).read_bytes()
    trace = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    assert len(trace["traceEvents"]) == count
    spans = run.spans()
    written = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert sorted(round(event["ts"] * 1000) for event in written) == sorted(spans.start)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("path", ["missing/folder/trace.json", ".", "bad\0name.json"])
def test_a_bad_path_writes_nothing(run: Run, tmp_path: Path, path: str) -> None:
    with pytest.raises(OutputError, match="cannot be written") as refused:
        run.write_trace(tmp_path / path)
    assert ".partial" not in str(refused.value)
    assert str(tmp_path / path) in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_frame_of_ones_own_is_written_and_what_overlaps_stands_on_its_own_row(tmp_path: Path) -> None:
    frame = pd.DataFrame({"start": [0, 10, 15, 40], "dur": [30, 10, 30, 5], "name": list("abcd"), "thread": "t"})
    collector.write_trace(frame, tmp_path / "mine.json")
    events = json.loads((tmp_path / "mine.json").read_text())["traceEvents"]
    rows = {event["name"]: event["tid"] for event in events if event["ph"] == "X"}
    assert rows["a"] == rows["b"] == rows["d"] != rows["c"]
    whole = pd.DataFrame({"start": [0], "dur": [30], "step": pd.array([pd.NA], pd.Int64Dtype()), "name": "a"})
    assert collector.write_trace(whole, tmp_path / "absent.json")
    with pytest.raises(OptionError, match="no column 'dur'"):
        collector.write_trace(frame.drop(columns="dur"), tmp_path / "other.json")


def test_flows_link_launches_to_kernels(device_run: Run, tmp_path: Path) -> None:
    device_run.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    ends = {phase: {e["id"]: e["ts"] for e in events if e["ph"] == phase} for phase in "sf"}
    assert len(ends["s"]) > 100
    assert ends["s"].keys() == ends["f"].keys()
    assert np.mean([ends["s"][i] <= ends["f"][i] for i in ends["s"]]) > 0.99


@pytest.mark.parametrize("kind", ["steps", "phases", "operators", "queues", "stages"])
def test_figures_are_plotly_figures(run: Run, kind: str) -> None:
    objects = pytest.importorskip("plotly.graph_objects")
    figure = run.figure(kind)
    assert isinstance(figure, objects.Figure)
    assert figure.data
    assert json.loads(figure.to_json())["data"]


def test_a_figure_without_rows_says_so(tmp_path: Path) -> None:
    pytest.importorskip("plotly.graph_objects")
    run = record_loop(tmp_path, lambda: None).run
    for kind in ("steps", "phases"):
        (note,) = run.figure(kind).layout.annotations
        assert note.text == "No training step and no evaluation batch was recorded."
    assert not open_run(build_run(tmp_path / "trained")).figure("steps").layout.annotations


def test_ranges_are_spans_and_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def loop() -> None:
        with collector.record("outer"), collector.record("inner"):
            pass

    run = record_loop(tmp_path, loop).run
    spans = run.spans(categories="range").set_index("name")
    assert spans.parent_span_id["inner"] == spans.span_id["outer"]
    run.print_ranges()
    assert "outer/inner" in capsys.readouterr().out


def test_empty_data_is_a_plain_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = record_loop(tmp_path, lambda: None).run
    assert run.spans(categories="kernel").empty
    assert run.device_executions().empty
    run.print_each_step()
    run.print_device_executions()
    run.print_ranges()
    printed = capsys.readouterr().out
    assert "No training step and no evaluation batch was recorded." in printed
    assert "No device work was recorded" in printed
    assert "This run has no ranges table." in printed
    with pytest.raises(TableMissingError):
        run.operator("aten::mm")


def test_each_step_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    open_run(build_run(tmp_path / "run", RunPlan(steps=5))).print_each_step()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + 5
    assert lines[1].split()[:3] == ["step", "total", "Gap"]
