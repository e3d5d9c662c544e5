"""Packets that are cut, damaged or hostile: whole ones are kept, or one line says what is wrong at which byte."""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path
from typing import Any

import pytest

from collector.format.schema.errors import TraceError
from collector.traces import source as bytes_of_files
from collector.traces.format import ReadOptions, TraceTables
from collector.traces.importing import import_trace
from collector.traces.limits import ReadLimits
from collector.traces.pftrace import source, state
from collector.traces.reading import read_trace
from tests.support.packets import BEGIN, END, Converter, PacketWriter
from tests.support.reading import codes_of
from tests.support.traces import build_trace, training_steps

BASE_NS = 1_751_410_836_000_000_000


def _content() -> bytes:
    made = Converter(build_trace(training_steps(), baseTimeNanoseconds=BASE_NS))
    made.write_each(made.slices)
    content: bytes = made.writer.trace.SerializeToString()
    return content


def _frame(packet: bytes) -> bytes:
    """Return a packet of at most 16 KiB as a file has it."""
    return b"\x0a" + bytes([len(packet) & 127 | 128, len(packet) >> 7]) + packet


def _read(folder: Path, content: bytes, **how: Any) -> TraceTables:
    (folder / "t.pftrace").write_bytes(content)
    return read_trace(folder / "t.pftrace", ReadOptions(**how))


def _refuse(folder: Path, content: bytes, **how: Any) -> str:
    with pytest.raises(TraceError) as caught:
        _read(folder, content, **how)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("left", [1, 0.5, 0.99])
def test_whole_packets_of_a_cut_file_are_kept(tmp_path: Path, left: float, packed: bool) -> None:
    whole = _content()
    content = gzip.compress(whole, 0) if packed else whole
    cut = content[: int(len(content) * left) - 3]
    expected = _read(tmp_path, whole).tables["slices"].num_rows
    read = _read(tmp_path, cut)
    assert 0 < read.tables["slices"].num_rows <= expected
    assert "trace_cut_off" in codes_of(read)
    text = next(warning.text for warning in read.warnings if warning.code == "trace_cut_off")
    assert ("the gzip data ends early" if packed else "the last packet ends early") in text


@pytest.mark.parametrize("zeros", [1, 3, 5_000_000])
def test_a_file_that_ends_in_zeros_was_cut_short(tmp_path: Path, zeros: int) -> None:
    read = _read(tmp_path, _content() + bytes(zeros))
    assert read.tables == _read(tmp_path, _content()).tables
    assert "the file ends in zeros" in read.warnings[-1].text


def test_a_packet_that_turns_to_zeros_was_cut_short(tmp_path: Path) -> None:
    whole = _content()
    read = _read(tmp_path, whole[:-30] + bytes(30) + bytes(100))
    assert read.tables["slices"].num_rows > 20
    assert codes_of(read) >= {"trace_cut_off"}


@pytest.mark.parametrize(
    ("odd", "reason"),
    [
        (_frame(b"\x0b\x01"), "is of type 3"),
        (_frame(b"\x5a\x7f\x08"), "ends beyond its packet"),
        (_frame(b"\x5a\x04\x08\xff\xff\xff"), "ends beyond its packet"),
        (_frame(b"\x40" + b"\xff" * 11), "a number is longer than 10 bytes"),
        (_frame(b"\x5a\x02\x1a\x01"), "ends beyond its packet"),
        (_frame(b"\x92\x03\x03abc"), "packed packets are damaged"),
        (b"\x07\x01\x02", "what follows is no packet"),
    ],
)
@pytest.mark.parametrize("small", [False, True])
def test_a_damaged_packet_is_named_by_its_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: bytes, reason: str, small: bool
) -> None:
    if small:
        monkeypatch.setattr(bytes_of_files, "BLOCK_BYTES", 100)
    whole = _content()
    said = _refuse(tmp_path, whole + odd + whole)
    assert re.fullmatch(rf"\S+t\.pftrace is broken at byte {len(whole)}: .*{reason}.*; export the trace again.*", said)


def test_a_file_named_as_packets_says_what_is_wrong_with_it(tmp_path: Path) -> None:
    assert "is broken at byte 0: what follows is no packet" in _refuse(tmp_path, b"\xffno packets at all")


def test_packets_without_events_are_refused(tmp_path: Path) -> None:
    writer = PacketWriter()
    writer.anchor(1, 1)
    content = writer.trace.SerializeToString()
    assert "is a trace without a single event" in _refuse(tmp_path, content)
    assert "ends before its first event (the last packet ends early)" in _refuse(tmp_path, content + b"\x0a\x20")


def _nested(depth: int) -> bytes:
    writer = PacketWriter()
    packet = writer.event(BEGIN, 1, 5, {"name": "a"})
    annotation = packet.track_event.debug_annotations.add(name="deep")
    for _ in range(depth):
        annotation = annotation.array_values.add()
    annotation.int_value = 1
    writer.event(END, 1, 9)
    content: bytes = writer.trace.SerializeToString()
    return content


def test_annotations_nest_to_a_bound(tmp_path: Path) -> None:
    assert _read(tmp_path, _nested(80)).tables["slices"].num_rows == 1
    deep = _nested(0)
    inner = b"\x20\x01"
    for _ in range(400):
        inner = b"\x62" + bytes([len(inner) & 127 | 128, len(inner) >> 7]) + inner
    annotation = b"\x22" + bytes([len(inner) & 127 | 128, len(inner) >> 7]) + inner
    event = b"\x48\x01" + annotation
    packet = b"\x40\x07" + b"\x5a" + bytes([len(event) & 127 | 128, len(event) >> 7]) + event
    assert "nested too deeply" in _refuse(tmp_path, deep + _frame(packet))


@pytest.mark.parametrize("text", ["[" * 5_000 + "]" * 5_000, "{", "NaN", "[1, 2", '"\ud800"'])
def test_json_that_cannot_be_read_stays_a_text(tmp_path: Path, text: str) -> None:
    writer = PacketWriter()
    packet = writer.event(BEGIN, 1, 5, {"name": "a"})
    annotation = packet.track_event.debug_annotations.add(name="odd")
    annotation.legacy_json_value = text.encode("utf-8", "replace").decode()
    packet.track_event.debug_annotations.add(name="metadata", string_value=text.encode("utf-8", "replace").decode())
    writer.event(END, 1, 9)
    (row,) = _read(tmp_path, writer.trace.SerializeToString()).tables["slices"].to_pylist()
    assert row["name"] == "a"


def test_names_take_a_bounded_part_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state.Budget.__init__, "__defaults__", (20_000,))
    writer = PacketWriter()
    for number in range(200):
        writer.packet().interned_data.event_names.add(iid=number, name="n" * 50)
    assert "names and tracks take more than" in _refuse(tmp_path, writer.trace.SerializeToString())
    again = [PacketWriter() for _ in range(50)]
    for number, one in enumerate(again):
        one.packet().interned_data.event_names.add(iid=1, name="n" * 900)
        one.event(BEGIN, 1, 10 * number, {"name": "a"})
        one.event(END, 1, 10 * number + 5)
    assert _read(tmp_path, b"".join(one.trace.SerializeToString() for one in again)).tables["slices"].num_rows == 50


def test_a_file_that_becomes_far_larger_is_not_read_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "BOMB_BYTES", 1 << 20)
    writer = PacketWriter()
    for number in range(400):
        writer.event(BEGIN, 1, number, {"name": "x" * 60_000})
        writer.event(END, 1, number)
    content = writer.trace.SerializeToString()
    assert "unpacks to more than 250 times its size" in _refuse(tmp_path, content)
    limits = ReadLimits(unpacked_bytes=1 << 20)
    assert "the limit of an import" in _refuse(tmp_path, content, limits=limits)


def test_packed_packets_unpack_to_a_bounded_size(tmp_path: Path) -> None:
    writer = PacketWriter()
    writer.packet().compressed_packets = zlib.compress(bytes(70 << 20))
    assert "unpack to more than 64 MiB" in _refuse(tmp_path, writer.trace.SerializeToString())


def test_a_packet_has_a_bounded_size(tmp_path: Path) -> None:
    start = _content()
    said = _refuse(tmp_path, start + b"\x0a\xff\xff\xff\xff\x0f" + bytes(1 << 16) + b"x" * (65 << 20))
    assert f"is broken at byte {len(start)}: a packet is longer than 64 MiB" in said


@pytest.mark.parametrize("time", [0, 1 << 62, (1 << 64) - 1])
def test_impossible_times_are_counted_and_left_out(tmp_path: Path, time: int) -> None:
    odd = PacketWriter(5)
    odd.event(BEGIN, 3, time, {"name": "odd"})
    odd.event(END, 3, (1 << 64) - 1)
    read = _read(tmp_path, _content() + odd.trace.SerializeToString())
    assert read.tables["slices"].num_rows == _read(tmp_path, _content()).tables["slices"].num_rows
    assert "trace_events_untimed" in codes_of(read)


def test_tracks_that_hang_in_a_circle_are_read(tmp_path: Path) -> None:
    writer = PacketWriter()
    for uuid, parent in ((1, 2), (2, 3), (3, 1), (4, 4)):
        descriptor = writer.packet().track_descriptor
        descriptor.uuid, descriptor.parent_uuid, descriptor.name = uuid, parent, f"row {uuid}"
    for uuid in (1, 4):
        writer.event(BEGIN, uuid, 5, {"name": "a"})
        writer.event(END, uuid, 9)
    assert _read(tmp_path, writer.trace.SerializeToString()).tables["slices"].num_rows == 2


def test_a_refused_file_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "t.pftrace").write_bytes(_content() + b"\x07")
    with pytest.raises(TraceError):
        import_trace(tmp_path / "t.pftrace", tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["t.pftrace"]
