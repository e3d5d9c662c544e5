"""Ranges that a script marked, on the timeline: a track for each thread, nested as they were."""

from __future__ import annotations

import threading
from pathlib import Path

import collector
from profiler_server.timeline.derived import derive_slices
from tests.support.recording import record as record_loop


def mark() -> None:
    with collector.record("outer"):
        for _ in range(2):
            with collector.record("inner"), collector.record("innermost"):
                pass


def test_ranges_nest_on_the_track_of_their_thread(tmp_path: Path) -> None:
    def loop() -> None:
        thread = threading.Thread(target=mark)
        thread.start()
        mark()
        thread.join()

    derived = derive_slices(record_loop(tmp_path, loop).run.rank(), [], 0)
    tracks = {track.id: track.name for track in derived.tracks if track.name.startswith("Ranges")}
    rows = [row for row in derived.slices.to_pylist() if row["track"] in tracks]
    assert len(tracks) == 2
    for track in tracks:
        found = sorted((row["depth"], row["name"]) for row in rows if row["track"] == track)
        assert found == [(0, "outer"), (1, "inner"), (1, "inner"), (2, "innermost"), (2, "innermost")]


def test_a_range_that_is_left_open_encloses_what_ran_inside(tmp_path: Path) -> None:
    def loop() -> None:
        collector.push_range("never closed")
        with collector.record("inside"):
            pass

    derived = derive_slices(record_loop(tmp_path, loop).run.rank(), [], 0)
    rows = [row for row in derived.slices.to_pylist() if row["table"] == "ranges"]
    assert sorted((row["depth"], row["name"]) for row in rows) == [(0, "never closed"), (1, "inside")]
    collector.pop_range()
