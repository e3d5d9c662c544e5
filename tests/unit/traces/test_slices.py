"""Slices of every kind: nested or not, from threads, frames and annotations."""

from __future__ import annotations

from pathlib import Path

from tests.support.reading import read_events, slices_named
from tests.support.traces import operator


def test_process_and_thread_may_be_words(tmp_path: Path) -> None:
    events = [operator("a", 0, 1), {**operator("span", 0, 9), "pid": "Notes", "tid": "main"}]
    tracks = read_events(tmp_path, events).tables["tracks"].to_pylist()
    assert {track["process"] for track in tracks} == {"100", "Notes"}


def test_begin_and_end_make_one_slice(tmp_path: Path) -> None:
    begin = {"ph": "B", "name": "outer", "pid": 1, "tid": 1, "ts": 10.5}
    end = {"ph": "E", "pid": 1, "tid": 1, "ts": 13.25}
    (row,) = slices_named(read_events(tmp_path, [operator("a", 0, 1), begin, end]), "outer")
    assert row["duration_ns"] == 2750


def test_stack_and_module_come_from_python_frames(tmp_path: Path) -> None:
    frames = [("train.py(3): main", 0, 100), ("nn.Module: Net_0", 10, 80), ("nn.Module: Linear_0", 20, 60)]
    events = [{**operator(name, at, length), "cat": "python_function"} for name, at, length in frames]
    (row,) = read_events(tmp_path, [*events, operator("aten::mm", 30, 10)]).tables["operators"].to_pylist()
    assert row["module"] == "Net_0.Linear_0"
    assert row["call_stack"].splitlines() == ["nn.Module: Linear_0", "nn.Module: Net_0", "train.py(3): main"]


def test_spans_of_the_profiler_itself_are_counted_and_not_shown(tmp_path: Path) -> None:
    span = {**operator("PyTorch Profiler (0)", 0, 9), "pid": "Spans", "tid": "PyTorch Profiler", "cat": "Trace"}
    end = {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 1_000_005.0}
    read = read_events(tmp_path, [operator("a", 0, 1), span, end])
    assert read.tables["slices"]["name"].to_pylist() == ["a"]
    assert read.tables["tracks"].num_rows == 1
    assert read.facts.facts["events"]["profiler_spans"] == 2
