"""What real files contain, each in a small file of its own."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

from collector.format.phases import PHASE_NAMES
from collector.format.schema.manifest import Device
from collector.traces import read_trace
from collector.traces.format import ReadOptions, StepBounds, TraceTables
from tests.support.traces import (
    Event,
    annotation,
    build_trace,
    call,
    copy,
    kernel,
    operator,
    step,
    training_steps,
    write_trace,
)


def _codes(read: TraceTables) -> set[str]:
    return {warning.code for warning in read.warnings}


def _slices(read: TraceTables, name: str) -> list[dict[str, object]]:
    return [row for row in read.tables["slices"].to_pylist() if row["name"] == name]


def test_slices_keep_every_event_with_exact_times(tmp_path: Path) -> None:
    events = training_steps(2)
    read = read_trace(write_trace(tmp_path / "t.json", events))
    rows = read.tables["slices"].to_pylist()
    assert len(rows) == len(events)
    assert sorted(row["duration_ns"] for row in rows) == sorted(int(event["dur"] * 1000) for event in events)


def test_gzip_and_plain_read_the_same(tmp_path: Path) -> None:
    plain = write_trace(tmp_path / "t.json", training_steps())
    packed = tmp_path / "other.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_trace(packed).tables == read_trace(plain).tables


def test_gzip_of_several_members_reads_whole(tmp_path: Path) -> None:
    content = write_trace(tmp_path / "t.json", training_steps()).read_bytes()
    packed = tmp_path / "t.json.gz"
    packed.write_bytes(gzip.compress(content[:700]) + gzip.compress(content[700:]))
    assert read_trace(packed).tables["slices"].num_rows == len(training_steps())


def test_name_of_the_file_does_not_matter(tmp_path: Path) -> None:
    named = write_trace(tmp_path / "worker0.pt.trace.json", training_steps())
    nameless = tmp_path / "x"
    nameless.write_bytes(named.read_bytes())
    assert read_trace(nameless).tables == read_trace(named).tables


@pytest.mark.parametrize(
    ("ts", "expected_ns"),
    [
        ("1000000.25", 250),
        ("1682725898236567.123", None),
        ("4458676416788.066", None),
        ('"1000000.5"', 500),
        ("1.000001e6", 1000),
    ],
)
def test_times_are_exact_however_they_are_spelled(tmp_path: Path, ts: str, expected_ns: int | None) -> None:
    first = '{"ph":"X","name":"a","pid":1,"tid":1,"ts":%s,"dur":0.001}'
    whole = ts.strip('"').split(".")[0] if "e" not in ts else "1000000"
    base = first.replace('"a"', '"b"') % whole
    path = tmp_path / "t.json"
    path.write_text(f'{{"traceEvents":[{base},{first % ts}]}}', encoding="utf-8")
    if expected_ns is None:
        expected_ns = int(ts.split(".")[1])
    (row,) = _slices(read_trace(path), "a")
    assert (row["start_ns"], row["duration_ns"]) == (expected_ns, 1)


def test_wall_clock_comes_from_the_base_time(tmp_path: Path) -> None:
    base = 1_751_410_836_000_000_000
    path = write_trace(tmp_path / "t.json", [operator("a", 0.5, 1)], {"baseTimeNanoseconds": base})
    facts = read_trace(path).facts
    assert (facts.epoch_unix_ns, facts.absolute) == (base + 1_000_000_500, True)


def test_kernel_belongs_to_the_operator_around_its_launch(tmp_path: Path) -> None:
    rows = read_trace(write_trace(tmp_path / "t.json", training_steps(1))).tables["slices"].to_pylist()
    by_id = {row["id"]: row for row in rows}
    kernels = [row for row in rows if row["category"] == "kernel"]
    assert [row["operator"] for row in kernels] == ["aten::addmm", "aten::mm"]
    assert {by_id[row["launched_by"]]["name"] for row in kernels} == {"cudaLaunchKernel"}


def test_external_id_links_what_has_no_launch(tmp_path: Path) -> None:
    events = [operator("aten::mm", 0, 5, **{"External id": 4}), kernel("k", 9, 2, 0, **{"External id": 4})]
    (row,) = _slices(read_trace(write_trace(tmp_path / "t.json", events)), "k")
    assert (row["operator"], row["launched_by"]) == ("aten::mm", None)


def test_operator_times_split_into_self_and_device(tmp_path: Path) -> None:
    rows = read_trace(write_trace(tmp_path / "t.json", training_steps(1))).tables["operators"].to_pylist()
    found = {row["name"]: row for row in rows}
    assert found["aten::linear"]["self_ns"] == 20_000
    assert found["aten::linear"]["device_total_ns"] == 100_000
    assert found["aten::linear"]["device_self_ns"] == 0
    assert found["aten::addmm"]["self_ns"] == 70_000
    assert found["aten::addmm"]["device_self_ns"] == 100_000
    assert found["aten::addmm"]["input_shapes"] == "[[8,4],[4,2]]"


def test_call_of_itself_does_not_count_device_time_twice(tmp_path: Path) -> None:
    events = [operator("aten::arange", 0, 9), operator("aten::arange", 1, 7), call(2, 1, 5), kernel("k", 4, 3, 5)]
    (row,) = read_trace(write_trace(tmp_path / "t.json", events)).tables["operators"].to_pylist()
    assert (row["count"], row["device_total_ns"], row["device_self_ns"]) == (2, 3000, 3000)


def test_steps_that_the_run_knows_replace_those_of_the_trace(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", [operator("a", 10, 5), operator("a", 30, 5)], {"baseTimeNanoseconds": 0})
    start = 1_000_000_000
    bounds = StepBounds((41, 42), (start, start + 20_000), (start + 20_000, start + 50_000))
    read = read_trace(path, ReadOptions(epoch_unix_ns=start - 1000, steps=bounds))
    rows = _slices(read, "a")
    assert [(row["step"], row["start_ns"]) for row in rows] == [(41, 11_000), (42, 31_000)]


def test_ids_may_be_strings_and_64_bits(tmp_path: Path) -> None:
    big = (1 << 64) - 5
    events: list[Event] = [call(0, 1, big), kernel("k", 3, 1, big), copy(8, 1, 3, bytes="1024")]
    events[1]["args"]["stream"] = "0x7"
    events[1] |= {"pid": "0", "tid": "stream 7"}
    (row,) = _slices(read_trace(write_trace(tmp_path / "t.json", events)), "k")
    assert row["correlation"] is None
    tracks = read_trace(write_trace(tmp_path / "t.json", events)).tables["tracks"].to_pylist()
    assert [track["stream"] for track in tracks if track["kind"] == "stream"] == [7]


def test_process_and_thread_may_be_words(tmp_path: Path) -> None:
    events = [operator("a", 0, 1), {**operator("span", 0, 9), "pid": "Notes", "tid": "main"}]
    tracks = read_trace(write_trace(tmp_path / "t.json", events)).tables["tracks"].to_pylist()
    assert {track["process"] for track in tracks} == {"100", "Notes"}


def test_graph_launch_links_all_its_kernels(tmp_path: Path) -> None:
    events = [call(0, 2, 9, "cudaGraphLaunch"), *(kernel(f"k{i}", 5 + i, 1, 9) for i in range(3))]
    rows = read_trace(write_trace(tmp_path / "t.json", events)).tables["slices"].to_pylist()
    launches = {row["launched_by"] for row in rows if row["category"] == "kernel"}
    assert launches == {row["id"] for row in rows if row["name"] == "cudaGraphLaunch"}


def test_slices_that_overlap_without_nesting_get_depths_of_their_own(tmp_path: Path) -> None:
    events = [operator("a", 0, 10), operator("b", 5, 10), operator("c", 12, 2)]
    rows = {
        row["name"]: row for row in read_trace(write_trace(tmp_path / "t.json", events)).tables["slices"].to_pylist()
    }
    assert {name: row["depth"] for name, row in rows.items()} == {"a": 0, "b": 1, "c": 2}
    assert rows["c"]["parent"] == rows["b"]["id"]
    assert rows["b"]["parent"] is None


def test_begin_and_end_make_one_slice(tmp_path: Path) -> None:
    begin = {"ph": "B", "name": "outer", "pid": 1, "tid": 1, "ts": 10.5}
    end = {"ph": "E", "pid": 1, "tid": 1, "ts": 13.25}
    (row,) = _slices(read_trace(write_trace(tmp_path / "t.json", [operator("a", 0, 1), begin, end])), "outer")
    assert row["duration_ns"] == 2750


def test_memory_events_make_a_curve(tmp_path: Path) -> None:
    def allocate(at: float, change: int, held: int) -> Event:
        args = {"Addr": 7, "Bytes": change, "Device Type": 1, "Device Id": 0, "Total Allocated": held}
        return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": at, "args": args}

    read = read_trace(write_trace(tmp_path / "t.json", [operator("a", 0, 1), allocate(5, 64, 64), allocate(6, -64, 0)]))
    assert read.tables["memory"]["allocated_bytes"].to_pylist() == [64, 0]
    assert read.tables["counters"]["value"].to_pylist() == [64.0, 0.0]
    assert read.tables["slices"].num_rows == 1


def test_stack_and_module_come_from_python_frames(tmp_path: Path) -> None:
    frames = [("train.py(3): main", 0, 100), ("nn.Module: Net_0", 10, 80), ("nn.Module: Linear_0", 20, 60)]
    events = [{**operator(name, at, length), "cat": "python_function"} for name, at, length in frames]
    (row,) = (
        read_trace(write_trace(tmp_path / "t.json", [*events, operator("aten::mm", 30, 10)]))
        .tables["operators"]
        .to_pylist()
    )
    assert row["module"] == "Net_0.Linear_0"
    assert row["call_stack"].splitlines() == ["nn.Module: Linear_0", "nn.Module: Net_0", "train.py(3): main"]


def test_collective_kernels_are_listed_with_size_and_order(tmp_path: Path) -> None:
    args = {"Collective name": "allreduce", "In msg nelems": 1000, "dtype": "Float", "Group size": 8}
    events = [kernel("ncclDevKernel_AllReduce_Sum_f32", at, 5, at, stream=20, **args) for at in (10, 30)]
    rows = read_trace(write_trace(tmp_path / "t.json", events)).tables["collectives"].to_pylist()
    assert [(r["name"], r["index"], r["bytes"], r["group_size"], r["on_device"]) for r in rows] == [
        ("allreduce", 0, 4000, 8, True),
        ("allreduce", 1, 4000, 8, True),
    ]


def test_rank_comes_from_the_file_or_its_name(tmp_path: Path) -> None:
    said = write_trace(tmp_path / "a.json", [operator("a", 0, 1)], {"distributedInfo": {"rank": 3, "world_size": 8}})
    named = write_trace(tmp_path / "host_rank12.json", [operator("a", 0, 1)])
    assert (read_trace(said).facts.rank, read_trace(said).facts.world_size) == (3, 8)
    assert read_trace(named).facts.rank == 12


def test_list_without_an_object_around_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([operator("a", 0, 1), operator("b", 2, 1)]), encoding="utf-8")
    assert read_trace(path).tables["slices"].num_rows == 2


def test_words_that_look_like_boundaries_do_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.traces.source.BLOCK_BYTES", 97)
    nasty = 'a"}, {"ph": "X", "name": "b"}], "traceName'
    events = [operator(nasty, i * 10, 5, note=[{"ph": 1}, {"ph": 2}], more=nasty) for i in range(40)]
    read = read_trace(write_trace(tmp_path / "t.json", events))
    assert read.tables["slices"]["name"].to_pylist() == [nasty] * 40
    assert read.warnings[0].code == "trace_without_steps"


def test_blocks_of_any_size_give_the_same_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_trace(tmp_path / "t.json", training_steps(6))
    whole = read_trace(path).tables
    for size in (61, 1024, 5000):
        monkeypatch.setattr("collector.traces.source.BLOCK_BYTES", size)
        assert read_trace(path).tables == whole


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ('"dur": 100.0', '"dur": NaN'),
        ('"name": "aten::linear"', '"name": "aten::\tli\nnear"'),
        ('"dur": 80\n  }', '"dur": 80,\n  }'),
        ('"name": "aten::linear"', '"name": "C:\\Users"'),
        ('"name": "aten::linear"', '"name": "half \\ud800 pair"'),
    ],
)
def test_faults_that_are_known_are_mended_and_said(tmp_path: Path, good: str, bad: str) -> None:
    text = json.dumps(build_trace(training_steps()), indent=1)
    path = tmp_path / "t.json"
    path.write_text(text.replace(good, bad) if good in text else text.replace("}\n ]", "},\n ]"), encoding="utf-8")
    read = read_trace(path)
    assert read.tables["slices"].num_rows == len(training_steps())
    assert "trace_repaired" in _codes(read)
    assert read.events_lost == 0


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "t.json", training_steps())
    path.write_bytes(path.read_bytes().replace(b"aten::linear", b"aten::\xff\xfe"))
    assert read_trace(path).tables["slices"].num_rows == len(training_steps())


def test_event_that_cannot_be_read_costs_only_itself(tmp_path: Path) -> None:
    events = training_steps()
    events[4]["name"] = {"not": "a name"}
    read = read_trace(write_trace(tmp_path / "t.json", events))
    assert read.tables["slices"].num_rows == len(events) - 1
    assert read.events_lost == 1
    assert "trace_events_unreadable" in _codes(read)


@pytest.mark.parametrize("share", [0.3, 0.55, 0.9])
def test_truncated_file_keeps_what_is_before_the_cut(tmp_path: Path, share: float) -> None:
    path = write_trace(tmp_path / "t.json", training_steps(20))
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    read = read_trace(path)
    expected = share * len(training_steps(20))
    assert expected * 0.9 - 3 <= read.tables["slices"].num_rows <= expected * 1.1
    assert "trace_cut_off" in _codes(read)


def test_truncated_gzip_keeps_what_is_before_the_cut(tmp_path: Path) -> None:
    content = json.dumps(build_trace(training_steps(2000))).encode()
    path = tmp_path / "t.json.gz"
    packed = gzip.compress(content)
    path.write_bytes(packed[: len(packed) // 2])
    read = read_trace(path)
    assert 1000 < read.tables["slices"].num_rows < len(training_steps(2000))
    assert "trace_cut_off" in _codes(read)


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    seen: list[float] = []
    read_trace(write_trace(tmp_path / "t.json", training_steps()), ReadOptions(on_progress=seen.append))
    assert seen[-1] == 1.0


def test_every_table_is_of_its_declared_schema(tmp_path: Path) -> None:
    from collector.format.arrow_schemas import arrow_schema

    read = read_trace(write_trace(tmp_path / "t.json", training_steps()))
    assert {name: table.schema for name, table in read.tables.items()} == {
        name: arrow_schema(name) for name in read.tables
    }
    assert all(isinstance(table, pa.Table) for table in read.tables.values())


def test_annotations_are_slices_but_no_operators(tmp_path: Path) -> None:
    events = [annotation("forward", 0, 50), operator("aten::mm", 10, 20), call(12, 1, 5), kernel("k", 20, 7, 5)]
    read = read_trace(write_trace(tmp_path / "t.json", [*events, annotation("Optimizer.step#SGD.step", 60, 9)]))
    assert read.tables["operators"]["name"].to_pylist() == ["aten::mm"]
    assert {"forward", "Optimizer.step#SGD.step"} <= set(read.tables["slices"]["name"].to_pylist())


def test_work_that_no_operator_launched_keeps_its_annotation(tmp_path: Path) -> None:
    events = [annotation("compiled graph", 0, 50), call(12, 1, 5), kernel("triton_poi", 20, 7, 5)]
    read = read_trace(write_trace(tmp_path / "t.json", events))
    assert read.tables["kernels"]["operator"].to_pylist() == ["compiled graph"]


def test_communication_that_nothing_hides_is_a_phase_of_its_own(tmp_path: Path) -> None:
    events = [step(1, 0, 100), call(1, 1, 1), call(3, 1, 2), kernel("k", 10, 30, 1)]
    events.append(kernel("ncclDevKernel_AllReduce", 30, 40, 2, stream=20))
    (row,) = read_trace(write_trace(tmp_path / "t.json", events)).tables["steps"].to_pylist()
    assert (row["communication_ns"], row["communication_total_ns"]) == (30_000, 40_000)
    assert sum(row[f"{name}_ns"] for name in PHASE_NAMES) == row["duration_ns"] == 100_000


def test_host_collective_is_exposed_where_no_operator_runs_beside_it(tmp_path: Path) -> None:
    gloo = {**annotation("gloo:all_reduce", 20, 60), "tid": 101}
    events = [step(1, 0, 100), operator("aten::mm", 30, 20), operator("c10d::wait_tensor", 60, 20), gloo]
    (row,) = read_trace(write_trace(tmp_path / "t.json", events)).tables["steps"].to_pylist()
    assert row["communication_ns"] == 40_000


def test_spans_of_the_profiler_itself_are_counted_and_not_shown(tmp_path: Path) -> None:
    span = {**operator("PyTorch Profiler (0)", 0, 9), "pid": "Spans", "tid": "PyTorch Profiler", "cat": "Trace"}
    end = {"ph": "i", "name": "Record Window End", "pid": "", "tid": "", "ts": 1_000_005.0}
    read = read_trace(write_trace(tmp_path / "t.json", [operator("a", 0, 1), span, end]))
    assert read.tables["slices"]["name"].to_pylist() == ["a"]
    assert read.tables["tracks"].num_rows == 1
    assert read.facts.facts["events"]["profiler_spans"] == 2


@pytest.mark.parametrize(("name", "kind"), [("hipLaunchKernel", "rocm"), ("cudaLaunchKernel", "cuda")])
def test_devices_that_no_line_describes_are_those_that_kernels_name(tmp_path: Path, name: str, kind: str) -> None:
    on_second = {"device": 1}
    events = [call(0, 2, 9, name), kernel("a", 3, 1, 9), call(5, 2, 10, name), kernel("b", 8, 1, 10, **on_second)]
    read = read_trace(write_trace(tmp_path / "t.json", events, {"deviceProperties": []}))
    assert read.facts.devices == (Device(0, "", kind), Device(1, "", kind))


def test_trace_without_device_work_has_no_device(tmp_path: Path) -> None:
    events = [operator("a", 0, 5), call(1, 1, 3, "cudaGetDeviceCount")]
    assert read_trace(write_trace(tmp_path / "t.json", events, {"deviceProperties": []})).facts.devices == ()
