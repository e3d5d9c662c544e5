"""A run in Python: frames of spans, operators by name, traces and figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from collector.format.rank import make_frame
from collector.format.schema.errors import OptionError
from collector.format.schema.tables import TABLES
from collector.notebook.frames import OPTIONAL, SCHEMA
from collector.notebook.run import Run, open_run
from collector.traces.importing import import_trace
from profiler_server.analysis.operators.operators import summarize_device_steps
from tests.support.traces import call, copy, kernel, step, write_trace


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
    import_trace(write_trace(tmp_path / "trace.json", events), tmp_path / "run")
    found = open_run(tmp_path / "run").device_executions()
    assert found[["count", "total_ns", "busy_ns", "wait_ns"]].values.tolist() == [[3, 70_000, 25_000, 45_000]]
