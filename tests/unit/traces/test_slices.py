"""Slices of every kind: nested or not, from threads, frames and annotations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.traces.importing import import_trace
from collector.traces.kineto import scratch
from collector.traces.kineto.classify import nesting
from collector.traces.kineto.classify.nesting import Spans, nest
from collector.traces.kineto.scratch import Scratch
from profiler_server.analysis.operators.operator_groups import build_module_tree
from tests.support.reading import read_events, slices_named
from tests.support.traces import Event, annotation, call, copy, kernel, operator, step, write_trace


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


def test_external_id_links_what_has_no_launch(tmp_path: Path) -> None:
    events = [operator("aten::mm", 0, 5, **{"External id": 4}), kernel("k", 9, 2, 0, **{"External id": 4})]
    (row,) = slices_named(read_events(tmp_path, events), "k")
    assert (row["operator"], row["launched_by"]) == ("aten::mm", None)


def test_call_of_itself_does_not_count_device_time_twice(tmp_path: Path) -> None:
    events = [operator("aten::arange", 0, 9), operator("aten::arange", 1, 7), call(2, 1, 5), kernel("k", 4, 3, 5)]
    (row,) = read_events(tmp_path, events).tables["operators"].to_pylist()
    assert (row["count"], row["device_total_ns"], row["device_self_ns"]) == (2, 3000, 3000)


def test_ids_may_be_strings_and_64_bits(tmp_path: Path) -> None:
    big = (1 << 64) - 5
    events: list[Event] = [call(0, 1, big), kernel("k", 3, 1, big), copy(8, 1, 3, bytes="1024")]
    events[1]["args"]["stream"] = "0x7"
    events[1] |= {"pid": "0", "tid": "stream 7"}
    (row,) = slices_named(read_events(tmp_path, events), "k")
    assert row["correlation"] is None
    tracks = read_events(tmp_path, events).tables["tracks"].to_pylist()
    assert [track["stream"] for track in tracks if track["kind"] == "stream"] == [7]


def test_graph_launch_links_all_its_kernels(tmp_path: Path) -> None:
    events = [call(0, 2, 9, "cudaGraphLaunch"), *(kernel(f"k{i}", 5 + i, 1, 9) for i in range(3))]
    rows = read_events(tmp_path, events).tables["slices"].to_pylist()
    launches = {row["launched_by"] for row in rows if row["category"] == "kernel"}
    assert launches == {row["id"] for row in rows if row["name"] == "cudaGraphLaunch"}


def test_work_that_no_operator_launched_keeps_its_annotation(tmp_path: Path) -> None:
    events = [annotation("compiled graph", 0, 50), call(12, 1, 5), kernel("triton_poi", 20, 7, 5)]
    read = read_events(tmp_path, events)
    assert read.tables["kernels"]["operator"].to_pylist() == ["compiled graph"]


def _module(name: str, at_us: float, length_us: float) -> Event:
    return {**operator(f"nn.Module: {name}", at_us, length_us), "cat": "python_function"}


def test_work_that_no_operator_launched_has_rows_of_its_own(tmp_path: Path) -> None:
    events = [step(1, 0, 200), operator("aten::mm", 5, 10), call(6, 1, 1), kernel("gemm", 20, 40, 1)]
    events += [kernel("early", 70, 30, 77), copy(100, 5, 78)]
    events += [annotation("mine", 110, 20), call(112, 1, 2), kernel("bare", 120, 7, 2)]
    rows = read_events(tmp_path, events).tables["operators"].to_pylist()
    assert {row["name"]: (row["step"], row["count"], row["device_self_ns"]) for row in rows} == {
        "aten::mm": (1, 1, 40_000),
        "(no operator: launched before the trace began)": (1, 0, 35_000),
        "(no operator: launched outside of all)": (1, 0, 7_000),
    }


def test_backward_belongs_to_the_module_of_its_forward(tmp_path: Path) -> None:
    def forward(name: str, at_us: float, number: int) -> list[Event]:
        # aten::linear bears the number of the node that aten::addmm makes.
        outer = operator("aten::linear", at_us, 30, **{"Sequence number": number})
        return [
            _module(name, at_us - 1, 40),
            outer,
            operator("aten::addmm", at_us + 5, 20, **{"Sequence number": number}),
        ]

    def backward(at_us: float, number: int, correlation: int) -> list[Event]:
        name = "autograd::engine::evaluate_function: AddmmBackward0"
        events = [operator(name, at_us, 40, **{"Sequence number": number, "Fwd thread id": 1})]
        events += [operator("aten::mm", at_us + 5, 20), call(at_us + 6, 1, correlation)]
        events += [kernel("gemm", at_us + 20, 10, correlation)]
        return [{**event, "tid": 200} if event["pid"] == 100 else event for event in events]

    events = [step(1, 0, 400), _module("Net_0", 0, 150), *forward("First_0", 10, 1), *forward("Second_0", 60, 2)]
    # An operator between the two makes no node and bears the number of the next one.
    events += [operator("aten::argmax", 52, 3, **{"Sequence number": 2})]
    events += [*backward(200, 2, 1), *backward(260, 1, 2), operator("aten::add_", 350, 5, **{"Sequence number": 9})]
    rank = import_trace(write_trace(tmp_path / "t.json", events), tmp_path / "run").rank()
    nodes = {node.path: node.own_device_ns for node in build_module_tree(rank)}
    assert nodes == {"Net_0": 0, "Net_0.First_0": 10_000, "Net_0.Second_0": 10_000, "(outside of every module)": 0}


slices = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30), st.integers(0, 12)), max_size=40)


@settings(max_examples=150)
@given(slices, st.integers(0, 3), st.sampled_from([3, 5, 1000]), st.sampled_from([3, 1000]))
def test_nesting_in_bulk_is_nesting_one_by_one(
    rows: list[tuple[int, int, int]], tolerance: int, block: int, walked: int
) -> None:
    track, start, length = (np.array([row[i] for row in rows], np.int64) for i in range(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scratch, "BLOCK_ROWS", block)
        patch.setattr(nesting, "_WALKED_ROWS", walked)
        found = nest(track, Spans(start, length, (np.arange(len(rows)),), tolerance), Scratch())
    nested = list(zip(found.depth.tolist(), found.parent.tolist(), strict=True))
    assert nested == _nest_singly(rows, tolerance)
    reach: dict[tuple[int, int], int] = {}
    for (own, begin, size), (depth, parent) in sorted(zip(rows, nested, strict=True)):
        assert not size or reach.get((own, depth), 0) <= begin
        reach[own, depth] = max(reach.get((own, depth), 0), begin + size)
        assert parent < 0 or (rows[parent][0] == own and nested[parent][0] < depth)


def _nest_singly(rows: list[tuple[int, int, int]], tolerance: int) -> list[tuple[int, int]]:
    """Put slices on a stack, one after the other."""
    found = [(0, -1)] * len(rows)
    stacks: dict[int, list[int]] = {0: [], 1: []}
    for row in sorted(range(len(rows)), key=lambda row: (rows[row][1], -rows[row][2], row)):
        track, start, length = rows[row]
        stack = stacks[track]
        while stack and sum(rows[stack[-1]][1:]) <= start:
            stack.pop()
        around = [other for other in stack if sum(rows[other][1:]) >= start + length - tolerance]
        found[row] = len(stack), around[-1] if around else -1
        stack.append(row)
    return found
