"""Building, searching and describing timelines of small runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from collector.format import parts
from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.errors import TableBrokenError
from profiler_server.timeline.area import summarize_area
from profiler_server.timeline.cache import CACHE_FOLDER, TimelineCache
from profiler_server.timeline.details import describe_slice
from profiler_server.timeline.search import search
from profiler_server.timeline.store import Timeline
from profiler_server.timeline.view import view_details, view_meta
from tests.support.runs import RunPlan, build_run
from tests.unit.timeline.rows import build_slices_run, make_slice, open_timeline

HOSTILE = "<script>alert(1)</script>"


def linked_rows() -> list[dict[str, Any]]:
    return [
        make_slice(0, 1000, 500, name="aten::mm", sequence=7, args='{"Input Dims": [[2, 3]]}'),
        make_slice(1, 1100, 50, name="cudaLaunchKernel", category="runtime", depth=1, parent=0),
        make_slice(2, 2000, 700, name="gemm" * 2500, category="kernel", track=8, launched_by=1, operator="aten::mm"),
        make_slice(3, 3000, 900, name="MmBackward0", sequence=7),
        make_slice(4, 5000, 100, name=HOSTILE),
    ]


def test_light_mode_has_a_timeline_without_slices(tmp_path: Path) -> None:
    build_run(tmp_path / "light", RunPlan(operators=False))
    timeline = open_timeline(open_run(tmp_path / "light").rank(0))
    assert [(t.group, t.name) for t in timeline.index.tracks] == [
        *(("Training", name) for name in ("Steps", "Phases", "Detailed windows")),
        *((f"Worker {number}", stage) for number in (0, 1) for stage in ("read", "transform", "collate")),
    ]
    assert timeline.index.lanes[0].count == 40


def test_steps_of_the_table_take_the_place_of_the_trace_s(tmp_path: Path) -> None:
    build_run(tmp_path / "run", RunPlan())
    timeline = open_timeline(open_run(tmp_path / "run").rank(0))
    steps = [
        lane for lane, track in zip(timeline.index.lanes, timeline.index.tracks, strict=False) if track.kind == "step"
    ]
    assert [lane.count for lane in steps] == [40]


def test_waits_are_told_from_work(tmp_path: Path) -> None:
    build_run(tmp_path / "run", RunPlan())
    names = open_timeline(open_run(tmp_path / "run").rank(0)).names
    found = dict(zip(names.name, names.category, strict=True))
    assert (found["read: wait on input queue"], found["transform"]) == ("wait", "stage")


def test_device_time_is_split_into_computation_communication_and_free(tmp_path: Path) -> None:
    rows = [
        make_slice(0, 0, 100, track=8, category="kernel", name="k"),
        make_slice(1, 50, 100, track=9, category="communication", name="nccl"),
        make_slice(2, 200, 50, track=8, category="kernel", name="k"),
    ]
    timeline = open_timeline(build_slices_run(tmp_path / "run", rows).rank(0))
    names = timeline.names
    total = {name: int(ns) for name, ns in zip(names.name, names.total_ns, strict=True)}
    parts_of_span = ("Computation", "Communication, overlapped", "Communication, exposed", "Free time")
    assert [total[name] for name in parts_of_span] == [150, 50, 50, 50]


def test_search_goes_forward_back_and_round(tmp_path: Path) -> None:
    rows = [make_slice(i, 1000 * i, 10, name="needle" if i % 5 == 0 else "hay", track=i % 3) for i in range(60)]
    timeline = open_timeline(build_slices_run(tmp_path / "run", rows).rank(0))
    seen, after = [], (-1, -1)
    for _ in range(13):
        found = search(timeline, "NEEDLE", after, "next")
        assert found.hit is not None
        after = (found.hit.start, found.hit.position)
        seen.append((found.number, found.hit.sid))
    assert seen == [(i + 1, 5 * i) for i in range(12)] + [(1, 0)]
    back = search(timeline, "needle", after, "previous")
    assert back.hit is not None
    assert (back.count, back.number, back.hit.sid) == (12, 12, 55)


def test_search_for_nothing_or_what_is_not_there_finds_nothing(tmp_path: Path) -> None:
    timeline = open_timeline(build_slices_run(tmp_path / "run", linked_rows()).rank(0))
    assert search(timeline, "", (-1, -1), "next").hit is None
    assert search(timeline, "no such name", (-1, -1), "previous").count == 0


def test_details_lead_from_kernel_to_launch_and_back(tmp_path: Path) -> None:
    timeline = open_timeline(build_slices_run(tmp_path / "run", linked_rows()).rank(0))
    kernel, launch, operator = (describe_slice(timeline, sid) for sid in (2, 1, 0))
    assert kernel is not None
    assert launch is not None
    assert operator is not None
    assert [(link.relation, link.place.sid) for link in kernel.links] == [("launched by", 1)]
    assert ("launches", 2) in [(link.relation, link.place.sid) for link in launch.links]
    assert [(link.relation, link.place.sid) for link in operator.links] == [("launches", 2), ("backward is", 3)]
    assert (operator.args["Input Dims"], operator.kind_count, kernel.args["operator"]) == ([[2, 3]], 1, "aten::mm")
    assert len(view_details(kernel)["whole"]) == 10_000


def test_a_backward_leads_to_the_last_forward_operator_of_its_number(tmp_path: Path) -> None:
    rows = [
        make_slice(0, 0, 500, name="aten::view", sequence=7),
        make_slice(1, 1000, 500, name="aten::linear", sequence=7),
        make_slice(2, 1100, 300, name="aten::addmm", sequence=7, depth=1, parent=1),
        make_slice(3, 5000, 900, name="autograd::engine::evaluate_function: AddmmBackward0", sequence=7, track=2),
        make_slice(4, 5100, 700, name="AddmmBackward0", sequence=7, track=2, depth=1, parent=3),
    ]
    timeline = open_timeline(build_slices_run(tmp_path / "run", rows).rank(0))
    links = {sid: find_linked(timeline, sid) for sid in range(5)}
    assert links[0] == []
    assert links[1] == [("backward is", 3)]
    assert links[2] == [("inside of", 1), ("backward is", 3)]
    assert links[3] == [("backward of", 2)]
    assert links[4] == [("inside of", 3), ("backward of", 2)]


def find_linked(timeline: Timeline, sid: int) -> list[tuple[str, int]]:
    details = describe_slice(timeline, sid)
    assert details is not None
    return [(link.relation, link.place.sid) for link in details.links]


def test_details_of_a_derived_slice_show_the_row_it_stands_for(tmp_path: Path) -> None:
    timeline = open_timeline(build_slices_run(tmp_path / "run", linked_rows()).rank(0))
    found = search(timeline, "transform", (-1, -1), "next").hit
    assert found is not None
    details = describe_slice(timeline, found.sid)
    assert details is not None
    assert details.args["batch"] == 0


def test_no_slice_of_that_number_is_none(tmp_path: Path) -> None:
    timeline = open_timeline(build_slices_run(tmp_path / "run", linked_rows()).rank(0))
    assert describe_slice(timeline, 10**6) is None


def test_the_dictionary_shortens_names_of_any_length(tmp_path: Path) -> None:
    timeline = open_timeline(build_slices_run(tmp_path / "run", linked_rows()).rank(0))
    names = view_meta(timeline)["names"]
    assert max(map(len, names)) == 400
    assert HOSTILE in names


def test_an_area_sums_only_what_lies_inside(tmp_path: Path) -> None:
    rows = [make_slice(i, 100 * i, 80, name="a" if i % 2 else "b") for i in range(10)]
    timeline = open_timeline(build_slices_run(tmp_path / "run", rows).rank(0))
    lane = next(i for i, entry in enumerate(timeline.index.lanes) if entry.track == 1)
    shift = timeline.index.origin_ns
    found = summarize_area(timeline, 140 - shift, 300 - shift, [lane])
    assert {row.name: (row.count, row.total_ns) for row in found.rows} == {"a": (1, 40), "b": (1, 80)}


def test_rows_out_of_order_are_sorted(tmp_path: Path) -> None:
    rows = [make_slice(i, 1000 * ((i * 37) % 100), 900) for i in range(100)]
    timeline = open_timeline(build_slices_run(tmp_path / "run", rows).rank(0))
    lanes = [i for i, entry in enumerate(timeline.index.lanes) if entry.track == 1]
    assert len(lanes) == 1
    assert sorted(timeline.raw.lane(lanes[0]).id.tolist()) == list(range(100))
    assert (timeline.raw.lane(lanes[0]).start[1:] > timeline.raw.lane(lanes[0]).start[:-1]).all()


def test_slices_of_a_track_that_was_not_declared_are_shown(tmp_path: Path) -> None:
    run = build_slices_run(tmp_path / "run", linked_rows())
    parts.find_files(run.rank(0).folder, "tracks")[0].unlink()
    timeline = open_timeline(run.rank(0))
    assert {"track 1", "track 8"} <= {track.name for track in timeline.index.tracks}


def test_slices_that_cannot_be_opened_are_left_out(tmp_path: Path) -> None:
    run = build_slices_run(tmp_path / "run", linked_rows())
    file = layout.table_file(run.rank(0).folder, "slices")
    file.write_bytes(file.read_bytes()[:-40])
    assert open_timeline(run.rank(0)).index.table_rows == 0


def test_a_table_that_is_damaged_further_in_is_named(tmp_path: Path) -> None:
    run = build_slices_run(tmp_path / "run", linked_rows())
    file = layout.table_file(run.rank(0).folder, "slices")
    data = bytearray(file.read_bytes())
    data[4 : len(data) // 4] = b"\xff" * (len(data) // 4 - 4)
    file.write_bytes(bytes(data))
    with pytest.raises(TableBrokenError, match="slices"):
        open_timeline(run.rank(0))
    assert list((run.rank(0).folder / CACHE_FOLDER).iterdir()) == []


def test_the_cache_is_used_again_and_renewed_when_a_table_changes(tmp_path: Path) -> None:
    run = build_slices_run(tmp_path / "run", linked_rows())
    cache = TimelineCache()
    first = cache.open(run.rank(0))
    assert cache.open(run.rank(0)) is first
    again = TimelineCache().open(run.rank(0))
    assert again.folder == first.folder
    build_slices_run(tmp_path / "run", [*linked_rows(), make_slice(5, 9000, 5, name="new")])
    renewed = cache.open(run.rank(0))
    assert renewed.stamp != first.stamp
    assert renewed.names.find("new").size == 1
    assert cache.find(run.rank(0), first.stamp) is first


def test_a_run_that_cannot_be_written_has_its_cache_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = build_slices_run(tmp_path / "run", linked_rows())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    # A file in the place of the folder stops root, too, whom permissions do not.
    (run.rank(0).folder / CACHE_FOLDER).write_text("")
    folder = open_timeline(run.rank(0)).folder
    assert run.path not in folder.parents
    assert tmp_path in folder.parents


def test_a_run_without_anything_has_an_empty_timeline(tmp_path: Path) -> None:
    build_run(tmp_path / "run", RunPlan(steps=3, operators=False))
    rank = open_run(tmp_path / "run").rank(0)
    for file in rank.folder.glob("*.parquet"):
        file.unlink()
    timeline = open_timeline(rank)
    assert (timeline.index.slices, view_meta(timeline)["tracks"]) == (0, [])
    shutil.rmtree(rank.folder / CACHE_FOLDER)


@pytest.mark.parametrize(
    "odd", [{"start_ns": 2**63 - 1}, {"start_ns": -(2**63)}, {"duration_ns": 2**63 - 1}, {"track": 2**31 - 1}]
)
def test_a_time_or_a_track_that_can_be_none_is_damage(tmp_path: Path, odd: dict[str, int]) -> None:
    run = build_slices_run(tmp_path / "run", [*linked_rows(), make_slice(9, 1, 1) | odd])
    with pytest.raises(TableBrokenError, match=f"slices.*{next(iter(odd))} holds"):
        open_timeline(run.rank(0))
    with pytest.raises(TableBrokenError, match=f"slices.*{next(iter(odd))} holds"):
        run.rank(0).table("slices")


def test_slices_at_both_ends_of_what_can_be_are_drawn(tmp_path: Path) -> None:
    rows = [make_slice(0, -(2**61), 2**61), make_slice(1, 2**61, 2**61)]
    timeline = open_timeline(build_slices_run(tmp_path / "run", rows).rank(0))
    assert {0, 1} <= set(timeline.cut_tile(timeline.index.top_level, 0).bins.id.tolist())
