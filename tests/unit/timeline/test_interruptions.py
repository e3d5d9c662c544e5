"""Checkpoints, validation and compilations have tracks of their own on the timeline."""

from __future__ import annotations

from pathlib import Path

from profiler_server.timeline.derived import derive_slices
from tests.support.cases import Plant, build_case_run
from tests.support.runs import MS, RunPlan


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


def test_a_run_without_any_of_it_has_no_such_track(tmp_path: Path) -> None:
    run = build_case_run(tmp_path, Plant(RunPlan(steps=20, operators=False)))
    names = {track.name for track in derive_slices(run.rank(), [], 0).tracks}
    assert not names & {"Checkpoints, validation", "torch.compile"}


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
