"""Building, searching and describing timelines of small runs, damaged ones too."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from collector.format import parts
from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.errors import NewerSchemaError, TableBrokenError
from collector.format.schema.removal import remove_tree
from profiler_server.analysis.replay.critical import find_critical_path
from profiler_server.analysis.steps.step_graph import trace_step
from profiler_server.timeline import cache
from profiler_server.timeline.cache import CACHE_FOLDER, TimelineCache, find_timelines
from profiler_server.timeline.derived import derive_slices
from profiler_server.timeline.search import search
from profiler_server.timeline.view import view_meta, view_path
from tests.support.cases import Plant, build_case_run
from tests.support.linked_slices import HOSTILE, linked_rows
from tests.support.runs import MS, RunPlan, build_run
from tests.support.windows import build_window, compute
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


@pytest.mark.parametrize("table", ["tracks", "counters", "queues", "memory", "steps", "phases"])
def test_a_table_of_a_newer_version_is_not_left_out_without_a_word(tmp_path: Path, table: str) -> None:
    rank = build_slices_run(tmp_path / "run", [make_slice(0, 0, 10)]).rank(0)
    steps, path = rank.table("steps"), layout.table_file(rank.folder, table)
    stored = parts.read_files([path] if path.exists() else [], table)
    pq.write_table(stored.replace_schema_metadata({b"stepscope.schema_version": b"99"}), path)
    with pytest.raises(NewerSchemaError):
        trace_step(rank, steps, 2) if table == "phases" else open_timeline(rank)


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


def test_the_dictionary_shortens_names_of_any_length(tmp_path: Path) -> None:
    timeline = open_timeline(build_slices_run(tmp_path / "run", linked_rows()).rank(0))
    names = view_meta(timeline)["names"]
    assert max(map(len, names)) == 400
    assert HOSTILE in names


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


def test_rows_out_of_order_are_sorted(tmp_path: Path) -> None:
    rows = [make_slice(i, 1000 * ((i * 37) % 100), 900) for i in range(100)]
    timeline = open_timeline(build_slices_run(tmp_path / "run", rows).rank(0))
    lanes = [i for i, entry in enumerate(timeline.index.lanes) if entry.track == 1]
    assert len(lanes) == 1
    held = timeline.raw.cut(lanes[0], 0, 100)
    assert sorted(held.id.tolist()) == list(range(100))
    assert (held.start[1:] > held.start[:-1]).all()


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


def test_each_piece_lies_on_the_lane_of_its_slice(tmp_path: Path) -> None:
    rank = build_window(tmp_path, compute, steps=3).rank()
    path = find_critical_path(rank)
    timeline = find_timelines().open(rank)
    found = view_path(timeline, path)
    assert path is not None
    assert len(found["starts"]) == len(found["ends"]) == len(found["lanes"]) == len(path.kind)
    tracks = [timeline.index.lanes[lane].track if lane >= 0 else -1 for lane in found["lanes"]]
    assert tracks == path.track.tolist()
    assert found["starts"][0] + timeline.index.origin_ns == path.start_ns[0]


def test_what_held_the_training_up_is_on_two_tracks(tmp_path: Path) -> None:
    saved = {"id": 0, "name": "torch.save", "path": "torch.save", "thread_id": 1, "start_ns": 2000 * MS}
    made = {"step": 3, "kind": "recompile", "start_ns": 1100 * MS, "duration_ns": 40 * MS, "name": "f (a.py:1)"}
    tables = {
        "ranges": [{**saved, "duration_ns": 90 * MS, "failed": False, "training": True}],
        "compiles": [{**made, "reason": "size mismatch"}],
    }
    run = build_case_run(tmp_path, Plant(RunPlan(steps=20, operators=False), tables=tables))
    derived = derive_slices(run.rank(), [], 0)
    tracks = {track.id: track.name for track in derived.tracks}
    found = {
        (tracks[row["track"]], row["name"], row["start_ns"], row["duration_ns"])
        for row in derived.slices.to_pylist()
        if tracks[row["track"]] in ("Checkpoints, validation", "torch.compile")
    }
    assert found == {
        ("Checkpoints, validation", "checkpoint (torch.save)", 2000 * MS, 90 * MS),
        ("torch.compile", "recompilation of f (a.py:1): size mismatch", 1100 * MS, 40 * MS),
    }


def test_collectives_outside_of_windows_have_a_track_for_each_group(tmp_path: Path) -> None:
    call = {"name": "allreduce", "index": 0, "start_ns": 1100 * MS, "duration_ns": 2 * MS, "on_device": False}
    calls = [
        {**call, "step": 2, "group": "0", "held_ns": MS},
        {**call, "step": 2, "group": "tensor", "held_ns": MS},
        {**call, "step": 11, "group": "0"},
    ]
    run = build_case_run(tmp_path, Plant(RunPlan(steps=20, operators=False), tables={"collectives": calls}))
    derived = derive_slices(run.rank(), [], 0)
    tracks = {track.id: track.name for track in derived.tracks}
    found = [(tracks[row["track"]], row["name"]) for row in derived.slices.to_pylist() if row["table"] == "collectives"]
    assert sorted(found) == [("Collectives, group 0", "allreduce"), ("Collectives, group tensor", "allreduce")]


def test_ranges_nest_on_the_track_of_their_thread(tmp_path: Path) -> None:
    common = {"process": 1, "failed": False, "training": False, "start_ns": 2000 * MS, "duration_ns": MS}
    names = ("outer", "outer/inner", "outer/inner/innermost", "outer/inner")
    ranges = [
        {**common, "id": 10 * thread + at, "parent": 10 * thread + parent if parent >= 0 else None, "thread_id": thread}
        | {"path": path, "name": path.rpartition("/")[2]}
        for thread in (1, 2)
        for at, (path, parent) in enumerate(zip(names, (-1, 0, 1, 0), strict=True))
    ]
    run = build_case_run(tmp_path, Plant(RunPlan(steps=20, operators=False), tables={"ranges": ranges}))
    derived = derive_slices(run.rank(), [], 0)
    tracks = {track.id: track.name for track in derived.tracks if track.name.startswith("Ranges")}
    rows = [row for row in derived.slices.to_pylist() if row["track"] in tracks]
    assert len(tracks) == 2
    for track in tracks:
        found = sorted((row["depth"], row["name"]) for row in rows if row["track"] == track)
        assert found == [(0, "outer"), (1, "inner"), (1, "inner"), (2, "innermost")]


ROOT = Path(__file__).parents[3]
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="no node: apt-get install nodejs")
def test_pure_functions_of_the_viewer() -> None:
    assert NODE is not None
    command = [NODE, "--no-warnings", "--experimental-default-type=module", "--test", "tests/js/timeline.test.mjs"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]


def test_search_for_nothing_or_what_is_not_there_finds_nothing(tmp_path: Path) -> None:
    timeline = open_timeline(build_slices_run(tmp_path / "run", linked_rows()).rank(0))
    assert search(timeline, "", (-1, -1), "next").hit is None
    assert search(timeline, "no such name", (-1, -1), "previous").count == 0
