"""What single packets of Perfetto become: names, tracks, clocks, arguments, counters, work of GPUs."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from collector.traces.format import TraceTables
from collector.traces.reading import read_trace
from tests.support.packets import BEGIN, COUNTER, END, INSTANT, PacketWriter
from tests.support.reading import codes_of, slices_named
from tests.support.traces import Event

BASE_NS = 1_751_410_836_000_000_000


def _start() -> tuple[PacketWriter, int]:
    writer = PacketWriter()
    writer.anchor(BASE_NS, BASE_NS)
    return writer, writer.track(1, 2, "main", "python")


def _named(name: str, category: str = "cpu_op", **args: Any) -> Event:
    return {"name": name, "cat": category, "args": args}


def _slice(writer: PacketWriter, track: int, span: tuple[int, int], event: Event) -> None:
    writer.event(BEGIN, track, BASE_NS + span[0], event)
    writer.event(END, track, BASE_NS + span[1])


def _read(folder: Path, writer: PacketWriter, more: bytes = b"") -> TraceTables:
    (folder / "t.pftrace").write_bytes(writer.trace.SerializeToString() + more)
    return read_trace(folder / "t.pftrace")


def _spans(read: TraceTables) -> list[tuple[str, int, int]]:
    """Return the slices with their begin and end since the base."""
    first = read.facts.epoch_unix_ns - BASE_NS
    rows = read.tables["slices"].to_pylist()
    spans = [(row["name"], row["start_ns"] + first, row["start_ns"] + first + row["duration_ns"]) for row in rows]
    return sorted(spans, key=lambda span: span[1])


def _args(read: TraceTables, name: str) -> dict[str, Any]:
    (row,) = slices_named(read, name)
    found: dict[str, Any] = json.loads(str(row["args"]))
    return found


def test_names_that_are_cleared_may_be_numbered_again(tmp_path: Path) -> None:
    writer, track = _start()
    _slice(writer, track, (0, 10), _named("before"))
    for sequence, at, name in ((2, 20, "of another writer"), (1, 40, "after")):
        other = PacketWriter(sequence)
        _slice(other, track, (at, at + 10), _named(name))
        writer.trace.MergeFrom(other.trace)
    expected = [("before", 0, 10), ("of another writer", 20, 30), ("after", 40, 50)]
    assert _spans(_read(tmp_path, writer)) == expected


def test_a_name_that_is_lost_costs_no_slice(tmp_path: Path) -> None:
    writer, track = _start()
    _slice(writer, track, (0, 10), _named("a"))
    writer.event(BEGIN, track, BASE_NS + 20).track_event.name_iid = 999
    writer.event(END, track, BASE_NS + 30)
    assert _spans(_read(tmp_path, writer))[1] == ("(a name that the file lacks)", 20, 30)


def test_a_writer_may_have_a_track_and_a_clock_of_its_own(tmp_path: Path) -> None:
    writer, track = _start()
    clocks = writer.packet().clock_snapshot.clocks
    clocks.add(clock_id=6, timestamp=BASE_NS)
    clocks.add(clock_id=64, timestamp=1_000, is_incremental=True, unit_multiplier_ns=1_000)
    defaults = writer.packet().trace_packet_defaults
    defaults.timestamp_clock_id, defaults.track_event_defaults.track_uuid = 64, track
    for kind, steps, name in ((BEGIN, 5, "a"), (BEGIN, 1, "b"), (END, 2, ""), (END, 4, "")):
        packet = writer.event(kind, 0, steps, _named(name) if name else None)
        packet.track_event.ClearField("track_uuid")
    writer.event(BEGIN, track, BASE_NS + 13_000, _named("c")).timestamp_clock_id = 6
    writer.event(END, track, 3)
    read = _read(tmp_path, writer)
    assert _spans(read) == [("a", 5_000, 12_000), ("b", 6_000, 8_000), ("c", 13_000, 15_000)]
    assert {row["name"] for row in read.tables["tracks"].to_pylist()} == {"main"}


def test_times_of_other_clocks_come_to_wall_time(tmp_path: Path) -> None:
    writer = PacketWriter()
    clocks = writer.packet().clock_snapshot.clocks
    for number, time_ns in ((6, 1_000), (3, 400), (1, BASE_NS + 1_000)):
        clocks.add(clock_id=number, timestamp=time_ns)
    for kind, time_ns in ((BEGIN, 450), (END, 500)):
        writer.event(kind, 7, time_ns, _named("a") if kind == BEGIN else None).timestamp_clock_id = 3
    read = _read(tmp_path, writer)
    assert (_spans(read), read.facts.absolute) == ([("a", 1_050, 1_100)], True)


def test_arguments_nest(tmp_path: Path) -> None:
    writer, track = _start()
    given: dict[str, Any] = {"flat": 1, "minus": -5, "text": 'a "b"', "share": 0.25, "yes": True, "nothing": None}
    given |= {"sizes": [[8, 4], [4, 2]], "inner": {"key": {"deep": ["x"]}}}
    _slice(writer, track, (0, 10), _named("a", **given))
    assert _args(_read(tmp_path, writer), "a") == given


def test_text_values_may_be_numbered_and_unknown_fields_are_ignored(tmp_path: Path) -> None:
    writer, track = _start()
    packet = writer.event(BEGIN, track, BASE_NS, _named("a"))
    packet.interned_data.debug_annotation_string_values.add(iid=5, str=b"a text")
    packet.track_event.debug_annotations.add(name="key", string_value_iid=5)
    packet.track_event.debug_annotations.add(name="large", uint_value=(1 << 63) + 1)
    packet.track_event.log_message.body_iid = 3
    packet.trusted_uid = 12
    writer.event(END, track, BASE_NS + 10)
    writer.packet().for_testing.str = "unknown"
    assert _args(_read(tmp_path, writer), "a") == {"key": "a text", "large": (1 << 63) + 1}


def test_arguments_in_one_text_are_spread_as_kineto_writes_them(tmp_path: Path) -> None:
    writer, track = _start()
    packet = writer.event(BEGIN, track, BASE_NS, _named("k", ""))
    text = '"device": 0, "stream": 7, "correlation": 3, "grid": [2, 1, 1], "block": [64, 1, 1]'
    packet.track_event.debug_annotations.add(name="metadata", string_value=text)
    writer.event(END, track, BASE_NS + 10)
    (row,) = _read(tmp_path, writer).tables["kernels"].to_pylist()
    assert (row["device"], row["stream"], row["grid"], row["total_ns"]) == (0, 7, "[2,1,1]", 10)


def test_a_track_below_a_thread_is_of_that_thread(tmp_path: Path) -> None:
    writer, track = _start()
    lane = writer.track(1, 2, lane=1)
    _slice(writer, track, (0, 10), _named("a"))
    _slice(writer, lane, (5, 15), _named("b"))
    read = _read(tmp_path, writer)
    (row,) = read.tables["tracks"].to_pylist()
    assert (row["name"], row["process"], row["thread_id"]) == ("main", "python 1", 2)
    assert _spans(read) == [("a", 0, 10), ("b", 5, 15)]


def test_many_begins_before_their_ends_are_paired_by_their_order(tmp_path: Path) -> None:
    """Back to back and with equal begins, as writers after the fact have them."""
    writer, track = _start()
    spans = [("inner", 0, 4), ("outer", 0, 9), ("next", 9, 12), ("empty", 12, 12), ("last", 12, 20)]
    for name, start, _ in spans:
        writer.event(BEGIN, track, BASE_NS + start, _named(name))
    for _, _, end in spans:
        writer.event(END, track, BASE_NS + end)
    assert sorted(_spans(_read(tmp_path, writer))) == sorted(spans)


def test_a_program_that_writes_while_it_runs_closes_the_last_slice(tmp_path: Path) -> None:
    writer, track = _start()
    for kind, time_ns, name in ((BEGIN, 0, "outer"), (BEGIN, 5, "empty"), (END, 5, ""), (END, 9, "")):
        writer.event(kind, track, BASE_NS + time_ns, _named(name) if name else None)
    assert _spans(_read(tmp_path, writer)) == [("outer", 0, 9), ("empty", 5, 5)]


def test_halves_of_slices_are_counted_as_lost(tmp_path: Path) -> None:
    writer, track = _start()
    writer.event(END, track, BASE_NS)
    _slice(writer, track, (5, 10), _named("a"))
    writer.event(BEGIN, track, BASE_NS + 20, _named("never ends"))
    writer.event(5, track, BASE_NS + 30, _named("of an unknown kind"))
    read = _read(tmp_path, writer)
    assert (_spans(read), read.events_lost) == ([("a", 5, 10)], 3)
    assert "trace_events_unknown" in codes_of(read)


@pytest.mark.parametrize(("phase", "length_us", "expected"), [("X", 3, 3_000), ("i", 0, 0), ("B", 0, 7_000)])
def test_events_of_the_older_form(tmp_path: Path, phase: str, length_us: int, expected: int) -> None:
    writer, track = _start()
    for letter, time_ns in ((phase, 0), *([("E", 7_000)] if phase == "B" else [])):
        packet = writer.event(0, track, BASE_NS + time_ns)
        legacy = packet.track_event.legacy_event
        legacy.phase, legacy.pid_override, legacy.tid_override = ord(letter), 40, 41
        if letter != "E":
            packet.track_event.name, packet.track_event.categories[:] = "a", ["cpu_op"]
            legacy.duration_us = length_us
    read = _read(tmp_path, writer)
    (row,) = read.tables["tracks"].to_pylist()
    assert (_spans(read), row["thread_id"]) == ([("a", 0, expected)], 41)


def test_instants_of_memory_make_the_table_of_memory(tmp_path: Path) -> None:
    writer, track = _start()
    _slice(writer, track, (0, 100), _named("a"))
    args = {"Addr": 64, "Bytes": 512, "Device Type": 1, "Device Id": 0, "Total Allocated": 512, "Total Reserved": 2048}
    writer.event(INSTANT, track, BASE_NS + 50, _named("[memory]", "cpu_instant_event", **args))
    (row,) = _read(tmp_path, writer).tables["memory"].to_pylist()
    assert (row["device"], row["allocated_bytes"], row["reserved_bytes"]) == (0, 512, 2048)


def test_counters_have_unit_and_factor_and_may_be_differences(tmp_path: Path) -> None:
    writer, track = _start()
    _slice(writer, track, (0, 100), _named("a"))
    for uuid, is_incremental in ((77, False), (78, True)):
        descriptor = writer.packet().track_descriptor
        descriptor.uuid, descriptor.name = uuid, f"used {uuid}"
        descriptor.counter.unit_name, descriptor.counter.unit_multiplier = "B", 1024
        descriptor.counter.is_incremental = is_incremental
        for time_ns in (10, 20):
            writer.event(COUNTER, uuid, BASE_NS + time_ns).track_event.counter_value = 2
    writer.event(COUNTER, 77, BASE_NS + 30).track_event.double_counter_value = 0.5
    read = _read(tmp_path, writer)
    names = {row["track"]: row["name"] for row in read.tables["tracks"].to_pylist()}
    found = [(names[row["track"]], row["value"]) for row in read.tables["counters"].to_pylist()]
    assert [value for name, value in found if "77" in name] == [2048, 2048, 512]
    assert [value for name, value in found if "78" in name] == [2048, 4096]


def test_flows_are_counted_as_those_of_json(tmp_path: Path) -> None:
    writer, track = _start()
    writer.event(BEGIN, track, BASE_NS, _named("a")).track_event.flow_ids[:] = [7, 8]
    writer.event(END, track, BASE_NS + 10)
    writer.event(BEGIN, track, BASE_NS + 20, _named("b")).track_event.terminating_flow_ids[:] = [7]
    writer.event(END, track, BASE_NS + 30)
    assert _read(tmp_path, writer).facts.facts["events"]["flows"] == 3


def test_packed_packets_are_read(tmp_path: Path) -> None:
    writer, track = _start()
    inner, _ = _start()
    _slice(inner, track, (0, 10), _named("a"))
    outer = PacketWriter(9)
    outer.packet().compressed_packets = zlib.compress(
        writer.trace.SerializeToString() + inner.trace.SerializeToString()
    )
    assert _spans(_read(tmp_path, outer)) == [("a", 0, 10)]


def test_work_of_gpus_as_torch_writes_it(tmp_path: Path) -> None:
    """A kernel and an argument named by number, in fields that Perfetto's own protos do not have; a copy; a range on a stream."""
    writer, track = _start()
    _slice(writer, track, (0, 100), _named("cudaLaunchKernel", "cuda_runtime", cbid=211, correlation=5))
    kernel = b"\x08\x0b" + b"\x1a\x04gemm"
    argument = b"\x08\x0c" + b"\x12\x14registers_per_thread"
    interned = b"\xc2\x3e" + bytes([len(kernel)]) + kernel + b"\xca\x3e" + bytes([len(argument)]) + argument
    packet = b"\x50\x01" + b"\x62" + bytes([len(interned)]) + interned
    more = b"\x0a" + bytes([len(packet)]) + packet
    rest = PacketWriter()
    rest.trace.packet.add(trusted_packet_sequence_id=1)
    specs = rest.trace.packet[0].interned_data.gpu_specifications
    for number, name, kind in (
        (101, "Kernel", 2),
        (102, "Memcpy", 0),
        (103, "Annotation", 0),
        (200, "[07] stream 7", 0),
    ):
        specs.add(iid=number, name=name, category=kind)
    for stage, time_ns, name in ((101, 50, ""), (102, 70, "Memcpy HtoD"), (103, 40, "all_reduce")):
        work = rest.packet(BASE_NS + time_ns).gpu_render_stage_event
        work.stage_iid, work.hw_queue_iid, work.gpu_id, work.duration = stage, 200, 1, 15
        extra = {"device id": "1", "stream id": "7", "correlation": "5"} | ({"bytes": "64"} if stage == 102 else {})
        for key, value in extra.items():
            work.extra_data.add(name=key, value=value)
        if name:
            work.name = name
        else:
            work.kernel_iid = 11
            work.launch.grid_size.x, work.launch.workgroup_size.x = 4, 128
            work.launch.args.add(name_iid=12, uint_value=32)
    read = _read(tmp_path, writer, more + rest.trace.SerializeToString())
    assert set(_spans(read)) == {
        ("cudaLaunchKernel", 0, 100),
        ("gemm", 50, 65),
        ("Memcpy HtoD", 70, 85),
        ("all_reduce", 40, 55),
    }
    kernels = {row["name"]: row for row in read.tables["kernels"].to_pylist()}
    assert (kernels["gemm"]["grid"], kernels["gemm"]["block"], kernels["gemm"]["stream"]) == ("[4,1,1]", "[128,1,1]", 7)
    assert _args(read, "gemm")["registers per thread"] == 32
    assert {row["category"] for row in read.tables["slices"].to_pylist()} == {
        "runtime",
        "kernel",
        "memcpy",
        "annotation",
    }
    assert read.facts.devices[0].index == 1


def test_counters_of_gpus(tmp_path: Path) -> None:
    writer, track = _start()
    _slice(writer, track, (0, 100), _named("a"))
    packet = writer.packet(BASE_NS + 10)
    descriptor = packet.interned_data.gpu_counter_descriptors.add(iid=1, gpu_id=2)
    descriptor.counter_descriptor.specs.add(counter_id=4, name="SM Active (%)")
    packet.gpu_counter_event.counter_descriptor_iid = 1
    packet.gpu_counter_event.counters.add(counter_id=4, double_value=62.5)
    read = _read(tmp_path, writer)
    assert [row["value"] for row in read.tables["counters"].to_pylist()] == [62.5]
    assert any("SM Active" in row["name"] for row in read.tables["tracks"].to_pylist())


def test_events_of_rocprofv3_have_the_names_of_kineto(tmp_path: Path) -> None:
    writer, track = _start()
    queue = writer.track(1, 'STREAM [" 3 "] ')
    launch = {"begin_ns": BASE_NS, "corr_id": 9, "stream_ID": 3, "tid": 2, "quote": '"corr_id":'}
    _slice(writer, track, (0, 10), _named("hipLaunchKernel", "hip_api", **launch))
    _slice(writer, queue, (20, 40), _named("gemm", "kernel_dispatch", agent="Agent-4", corr_id=9, stream_ID=3))
    copy = {"dst_agent": "Agent-4", "src_agent": "Agent-0", "copy_bytes": 4096, "corr_id": 12, "stream_ID": 3}
    _slice(writer, queue, (50, 60), _named("MEMORY_COPY_HOST_TO_DEVICE", "memory_copy", **copy))
    _slice(writer, track, (0, 70), _named("step", "marker_api"))
    read = _read(tmp_path, writer)
    found = {row["name"]: row["category"] for row in read.tables["slices"].to_pylist()}
    assert found == {
        "hipLaunchKernel": "runtime",
        "gemm": "kernel",
        "MEMORY_COPY_HOST_TO_DEVICE": "memcpy",
        "step": "annotation",
    }
    assert _args(read, "hipLaunchKernel")["quote"] == '"corr_id":'
    rows = read.tables["tracks"].to_pylist()
    assert [(row["device"], row["stream"]) for row in rows if row["kind"] == "stream"] == [(4, 3)]


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("cudaLaunchKernel", {"cbid": 211, "correlation": 3}, "runtime"),
        ("aten::mm", {"External id": 3}, "operator"),
        ("ProfilerStep#3", {"External id": 4}, "annotation"),
        ("train.py(3): step", {"Python id": 3}, "python"),
        ("Stream Sync", {"cuda_sync_kind": "Stream Sync", "stream": 7, "device": 0}, "other"),
        ("Memset (Device)", {"stream": 7, "device": 0}, "memset"),
        ("anything", {}, "other"),
    ],
)
def test_an_event_without_a_category_is_known_by_its_arguments(
    tmp_path: Path, name: str, args: dict[str, Any], expected: str
) -> None:
    writer, track = _start()
    _slice(writer, track, (0, 10), _named(name, "", **args))
    (row,) = _read(tmp_path, writer).tables["slices"].to_pylist()
    assert row["category"] == expected
