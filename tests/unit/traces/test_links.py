"""Which work an operator launched, and what its own time is."""

from __future__ import annotations

from pathlib import Path

from tests.support.reading import read_events, slices_named
from tests.support.traces import Event, annotation, call, copy, kernel, operator


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
