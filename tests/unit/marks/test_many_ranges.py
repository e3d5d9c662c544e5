"""Ranges in masses, ranges that nobody records, and ranges that are never closed."""

from __future__ import annotations

import time
from pathlib import Path

import collector
from tests.support.recording import record as record_loop


def test_what_is_marked_while_paused_or_after_the_run_is_absent(tmp_path: Path) -> None:
    profiler = collector.Profiler(tmp_path, window=None)
    with collector.record("seen"):
        pass
    profiler.pause()
    with collector.record("paused"):
        collector.push_range("paused too")
        profiler.resume()
        collector.pop_range()
    run = profiler.analyse()
    with collector.record("late"):
        collector.push_range("late")
        collector.pop_range()
        collector.pop_range()  # while nothing is recorded, nothing is refused
    assert run.frame("ranges").path.tolist() == ["seen"]
    assert list((tmp_path / "profiler/rank_0/events").glob("marks-*")) == []


def test_many_names_and_many_ranges_keep_their_names(tmp_path: Path) -> None:
    def loop() -> None:
        for _ in range(40_000):  # more than the log holds: the oldest are lost, and counted
            with collector.record("often"):
                pass

    run = record_loop(tmp_path, loop).run
    assert set(run.frame("ranges").name) == {"often"}
    assert run.rank().manifest.events_lost > 0


def test_marks_cost_next_to_nothing_while_nothing_is_recorded() -> None:
    count = 20_000
    best = min(time_marks(count) for _ in range(5))
    assert best / count < 2_000  # ns of a processor for a pair; about 230 on a quiet machine


def time_marks(count: int) -> int:
    start = time.thread_time_ns()
    for _ in range(count):
        collector.push_range("a")
        collector.pop_range()
    return time.thread_time_ns() - start


def test_a_push_that_is_never_popped_is_kept_and_warned_of(tmp_path: Path) -> None:
    def loop() -> None:
        with collector.record("whole"):
            collector.push_range("closed")
            collector.pop_range()
        collector.push_range("outer")
        collector.push_range("inner")

    run = record_loop(tmp_path, loop).run
    rows = {row["name"]: row for row in run.table("ranges").to_pylist()}
    assert {name: row["left_open"] for name, row in rows.items()} == {
        "whole": False,
        "closed": False,
        "outer": True,
        "inner": True,
    }
    assert rows["inner"]["parent"] == rows["outer"]["id"]
    assert rows["inner"]["duration_ns"] <= rows["outer"]["duration_ns"]
    (warning,) = [entry for entry in run.rank().manifest.warnings if entry.code == "ranges_left_open"]
    assert "never popped: 2, the first is 'outer'" in warning.text
    for _ in range(2):
        collector.pop_range()  # this thread goes on with other tests
