"""A trace that a script writes from an opened run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import collector
from collector.format.schema.errors import OptionError, OutputError
from collector.notebook.run import Run


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
