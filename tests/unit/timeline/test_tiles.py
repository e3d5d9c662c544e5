"""Tiles, lanes and the device's rows against brute force: nothing is missing, and counts are conserved."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.format.intervals import unite
from collector.traces.importing import import_trace
from profiler_server.timeline.device import DEVICE_ROWS, DeviceSlices, DeviceWork
from profiler_server.timeline.scratch import LaneAllocator
from profiler_server.timeline.sources import Batch
from profiler_server.timeline.store import Timeline
from profiler_server.timeline.tiles import pack_tile
from tests.support.runs import RunPlan, build_run
from tests.support.traces import step, write_trace
from tests.unit.timeline.rows import build_slices_run, make_slice, open_timeline

MS = 1_000_000
SLICE = st.tuples(
    st.integers(0, 4000 * MS), st.one_of(st.integers(0, 5000), st.integers(0, 900 * MS)), st.integers(1, 3)
)


@settings(max_examples=10)
@given(st.lists(SLICE, min_size=1, max_size=300))
def test_every_slice_is_in_the_tiles_it_runs_in(drawn: list[tuple[int, int, int]]) -> None:
    rows = [make_slice(i, a, n, track=t) for i, (a, n, t) in enumerate(sorted(drawn))]
    with tempfile.TemporaryDirectory() as folder:
        timeline = open_timeline(build_slices_run(Path(folder) / "run", rows).rank(0))
        origin = timeline.index.origin_ns
        for level in range(timeline.index.raw_level, timeline.index.top_level + 1):
            size = 1 << (level + 10)
            for number in range(timeline.span_ns // size + 1):
                bins = timeline.cut_tile(level, number).bins
                begin, end = number * size + origin, (number + 1) * size + origin
                running = {
                    r["id"] for r in rows if r["start_ns"] < end and r["start_ns"] + max(r["duration_ns"], 1) > begin
                }
                wide = {r["id"] for r in rows if r["duration_ns"] >= 1 << level} & running
                found = set(bins.id.tolist())
                assert wide <= found, (level, number)
                if level == timeline.index.raw_level:
                    assert {i for i in found if i < len(rows)} >= {i for i in running if rows[i]["start_ns"] >= begin}


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Timeline:
    """20,000 short slices on two tracks, and one that runs all the time."""
    rng = np.random.default_rng(3)
    starts = np.sort(rng.integers(0, 3000 * MS, 20_000))
    rows: list[dict[str, Any]] = [make_slice(0, 0, 3100 * MS, track=9, name="long")]
    rows += [
        make_slice(i + 1, int(a), int(rng.integers(100, 40_000)), track=int(i % 2 + 1)) for i, a in enumerate(starts)
    ]
    return open_timeline(build_slices_run(tmp_path_factory.mktemp("dense") / "run", rows).rank(0))


def test_a_pyramid_is_stored_and_conserves_counts(dense: Timeline) -> None:
    assert dense.index.levels
    for level in range(dense.index.raw_level, dense.index.top_level + 1):
        bins = dense.cut(level, 0, dense.span_ns + 1).bins
        assert int(bins.merged.sum()) == dense.index.slices, level


def test_the_long_slice_is_in_every_raw_tile(dense: Timeline) -> None:
    size = 1 << (dense.index.raw_level + 10)
    for number in range((3000 * MS) // size):
        cut = dense.cut_tile(dense.index.raw_level, number)
        assert 0 in cut.bins.id[cut.bins.name == dense.names.find("long")[0]]


def test_lanes_of_a_merged_tile_are_those_of_its_slices(dense: Timeline) -> None:
    cut = dense.cut_tile(dense.index.top_level, 0)
    for lane in np.unique(cut.lane):
        ids = set(cut.bins.id[cut.lane == lane].tolist())
        assert ids <= set(dense.raw.cut(int(lane), 0, dense.raw.counts[lane]).id.tolist())


def test_a_packed_tile_has_the_declared_layout(dense: Timeline) -> None:
    body = pack_tile(dense, dense.index.top_level, 0)
    magic, slices, lanes, counters, points, level, begin, tick = struct.unpack_from("<4s5I2d", body)
    assert (magic, level, begin) == (b"TLT1", dense.index.top_level, 0.0)
    padded = sum((-(-size // 4)) * 4 for size in (2 * slices, slices))
    assert len(body) == 40 + 8 * lanes + 16 * slices + padded + 8 * counters + 16 * points
    table = np.frombuffer(body, np.uint32, 2 * lanes, 40).reshape(-1, 2)
    assert table[:, 1].sum() == slices
    length = np.frombuffer(body, np.uint32, slices, 40 + 8 * lanes + 4 * slices)
    assert length.max() * tick >= 3100 * MS - tick


def test_counters_are_in_the_tile(tmp_path: Path) -> None:
    build_run(tmp_path / "run", RunPlan(queue_depths=(0, 3)))
    from collector.format.run import open_run

    timeline = open_timeline(open_run(tmp_path / "run").rank(0))
    body = pack_tile(timeline, timeline.index.top_level, 0)
    points = struct.unpack_from("<4s5I", body)[4]
    low = np.frombuffer(body, np.float32, points, len(body) - 12 * points)
    assert [track.name for track in timeline.index.counters] == ["worker queue"]
    assert (points, low.min(), low.max()) == (40, 0.0, 3.0)


def test_memory_that_a_trace_counts_too_has_one_track(tmp_path: Path) -> None:
    args = {"Device Type": 0, "Device Id": -1, "Addr": 1, "Bytes": 64, "Total Allocated": 64, "Total Reserved": 9}
    allocation = {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5, "args": args}
    run = import_trace(write_trace(tmp_path / "trace.json", [step(1, 0, 99), allocation]), tmp_path / "run")
    assert [track["name"] for track in run.rank().table("tracks").to_pylist() if track["kind"] == "counter"]
    (track,) = open_timeline(run.rank()).index.counters
    assert (track.name, track.group) == ("host, allocated", "Memory")


def test_reading_ahead_in_a_large_file_gives_the_same_tiles(dense: Timeline, monkeypatch: pytest.MonkeyPatch) -> None:
    tiles = [pack_tile(dense, dense.index.raw_level, number) for number in range(4)]
    monkeypatch.setattr("profiler_server.timeline.lane_file._AHEAD_BYTES", 0)
    again = Timeline(dense.folder, dense.rank, dense.stamp)
    assert [pack_tile(again, dense.index.raw_level, number) for number in range(4)] == tiles


LANED = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 60), st.integers(0, 2)), min_size=1, max_size=80)


def place(slices: list[tuple[int, int, int]], batch: int) -> tuple[list[int], list[tuple[int, int, int]]]:
    ordered = sorted(slices)
    allocator = LaneAllocator()
    lanes: list[int] = []
    for at in range(0, len(ordered), batch):
        start, length, depth = (np.array(column, np.int64) for column in zip(*ordered[at : at + batch], strict=True))
        track = np.zeros(start.size, np.int32)
        lanes += allocator.place(track, depth.astype(np.int32), start, start + length).tolist()
    return lanes, ordered


@settings(max_examples=40)
@given(LANED, st.integers(1, 30))
def test_slices_of_a_lane_never_overlap(slices: list[tuple[int, int, int]], batch: int) -> None:
    lanes, ordered = place(slices, batch)
    for lane in set(lanes):
        row = [ordered[i] for i in range(len(ordered)) if lanes[i] == lane]
        ends = [start + max(length, 1) for start, length, _ in row]
        assert all(begin >= end for (begin, _, _), end in zip(row[1:], ends, strict=False))


@settings(max_examples=40)
@given(LANED)
def test_lanes_are_as_many_as_overlap_at_once(slices: list[tuple[int, int, int]]) -> None:
    lanes, ordered = place(slices, 10)
    for depth in {depth for _, _, depth in ordered}:
        mine = [(start, start + max(length, 1)) for start, length, d in ordered if d == depth]
        most = max(sum(a <= at < b for a, b in mine) for at, _ in mine)
        used = {lane for lane, (_, _, d) in zip(lanes, ordered, strict=True) if d == depth}
        assert len(used) <= most


CATEGORIES = ["kernel", "communication", "memcpy", "runtime"]
SLICES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 25), st.integers(0, 3), st.integers(1, 2)), max_size=40)


def make_batch(rows: list[tuple[int, int, int, int]]) -> Batch:
    start, length, code, track = np.array(rows, np.int64).reshape(-1, 4).T
    names = pa.DictionaryArray.from_arrays(pa.array(code.astype(np.int32)), pa.array(CATEGORIES))
    zero = np.zeros(start.size, np.int32)
    return Batch(track.astype(np.int32), zero, start, start + length, names, names, zero.astype(np.uint32))


def sum_up(rows: list[tuple[int, int, int, int]], size: int) -> dict[str, list[tuple[int, int]]]:
    work = DeviceWork([1])
    found: list[DeviceSlices] = []
    for at in range(0, len(rows), size):
        found += work.add(make_batch(rows[at : at + size]))
    found += work.finish()
    summed: dict[str, list[tuple[int, int]]] = {row.name: [] for row in DEVICE_ROWS}
    for row, intervals in found:
        summed[DEVICE_ROWS[row].name] += zip(intervals.starts.tolist(), intervals.ends.tolist(), strict=True)
    return summed


@settings(max_examples=30)
@given(SLICES, st.integers(1, 9))
def test_batches_give_what_the_whole_gives(drawn: list[tuple[int, int, int, int]], size: int) -> None:
    rows = sorted(drawn)
    assert sum_up(rows, size) == sum_up(rows, len(rows) + 1)


@settings(max_examples=30)
@given(SLICES)
def test_the_rows_are_the_sets_that_they_are_named_after(drawn: list[tuple[int, int, int, int]]) -> None:
    rows = [row for row in sorted(drawn) if row[3] == 1 and row[2] < 3]
    kinds = [
        unite(*np.array([(a, a + n) for a, n, code, _ in rows if code == kind], np.int64).reshape(-1, 2).T)
        for kind in range(3)
    ]
    compute, communication, copies = kinds
    busy = compute | communication | copies
    found = sum_up(sorted(drawn), 5)
    assert found["Computation"] == list(zip(compute.starts.tolist(), compute.ends.tolist(), strict=True))
    exposed = copies - compute - communication
    assert found["Copies, exposed"] == list(zip(exposed.starts.tolist(), exposed.ends.tolist(), strict=True))
    free = sum(end - start for start, end in found["Free time"])
    assert free == (int(busy.ends[-1] - busy.starts[0]) - busy.length_ns if busy.starts.size else 0)
