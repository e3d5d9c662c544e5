"""Building, searching and describing timelines of small runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import open_run
from collector.format.schema.removal import remove_tree
from profiler_server.timeline import cache
from profiler_server.timeline.cache import CACHE_FOLDER, TimelineCache
from profiler_server.timeline.search import search, summarize_area
from profiler_server.timeline.view import view_meta
from tests.support.linked_slices import HOSTILE, linked_rows
from tests.support.runs import RunPlan, build_run
from tests.unit.timeline.rows import build_slices_run, make_slice, open_timeline


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


def test_the_cache_is_used_again_and_renewed_when_a_table_changes(tmp_path: Path) -> None:
    run = build_slices_run(tmp_path / "run", linked_rows())
    timelines = TimelineCache()
    first = timelines.open(run.rank(0))
    assert timelines.open(run.rank(0)) is first
    again = TimelineCache().open(run.rank(0))
    assert again.folder == first.folder
    build_slices_run(tmp_path / "run", [*linked_rows(), make_slice(5, 9000, 5, name="new")])
    renewed = timelines.open(run.rank(0))
    assert renewed.stamp != first.stamp
    assert renewed.names.find("new").size == 1
    assert timelines.find(run.rank(0), first.stamp) is first


def test_a_run_that_cannot_be_written_has_its_cache_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = build_slices_run(tmp_path / "run", linked_rows())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    # A file in the place of the folder stops root, too, whom permissions do not.
    (run.rank(0).folder / CACHE_FOLDER).write_text("")
    folder = open_timeline(run.rank(0)).folder
    assert run.path not in folder.parents
    assert tmp_path in folder.parents


def test_what_another_user_has_left_among_the_caches_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = build_slices_run(tmp_path / "run", linked_rows())
    root = run.rank(0).folder / CACHE_FOLDER
    theirs = root / f".partial-{'0' * 16}"
    theirs.mkdir(parents=True)

    def refuse(path: Path, *rest: Any) -> None:
        if path == theirs:
            raise PermissionError(13, "Permission denied", str(path))
        remove_tree(path, *rest)

    monkeypatch.setattr(cache, "remove_tree", refuse)
    assert open_timeline(run.rank(0)).folder.parent == root
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter([folder / f"{n:016}" for n in range(3)]))
    cache._remove_old(root)  # those that were listed are gone by now


def test_a_run_without_anything_has_an_empty_timeline(tmp_path: Path) -> None:
    build_run(tmp_path / "run", RunPlan(steps=3, operators=False))
    rank = open_run(tmp_path / "run").rank(0)
    for file in rank.folder.glob("*.parquet"):
        file.unlink()
    timeline = open_timeline(rank)
    assert (timeline.index.slices, view_meta(timeline)["tracks"]) == (0, [])
    shutil.rmtree(rank.folder / CACHE_FOLDER)
