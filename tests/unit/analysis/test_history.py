"""Histories of a script: runs on other machines are told apart, and a change lies where the levels part."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from collector.format.schema.manifest import RunManifest
from profiler_server.analysis.change_points import find_level_changes
from profiler_server.analysis.history import find_run_changes, list_histories
from profiler_server.figures.history import Course, Dot, Level, build_history, find_base_ns
from profiler_server.store.headline import Headline, RunEntry, Setup


def make_entry(number: int, step_ns: float | None = 60e6, setup: Setup | None = None, **manifest: Any) -> RunEntry:
    values = {"id": f"cnn-{number}", "name": f"cnn-{number}", "source": "collector", "world_size": 1, "host": "a"}
    known = RunManifest(created_unix_ns=number, epoch_unix_ns=0, **{**values, **manifest})
    return RunEntry(
        known.id, Path(known.id), known, Headline("complete", (0,), 100, step_ns, None, setup=setup or Setup())
    )


def test_runs_of_one_script_and_machine_are_one_history_in_time_order() -> None:
    runs = [make_entry(number, setup=Setup(commit="a" * 40, is_dirty=bool(number % 2))) for number in (3, 2, 1)]
    (history,) = list_histories(runs)
    assert [run.id for run in history.runs] == ["cnn-1", "cnn-2", "cnn-3"]


@pytest.mark.parametrize(
    "other",
    [
        make_entry(2, host="b"),
        make_entry(2, world_size=4),
        make_entry(2, script="other.py"),
        make_entry(2, id="net-2", name="net-2"),
        make_entry(2, setup=Setup(device="NVIDIA H100")),
        make_entry(2, setup=Setup(batch_size=64)),
    ],
    ids=["host", "ranks", "script", "name", "device", "batch size"],
)
def test_runs_of_other_kinds_are_told_apart(other: RunEntry) -> None:
    assert [len(history.runs) for history in list_histories([make_entry(3), other, make_entry(1)])] == [2, 1]


def test_traces_and_runs_without_steps_are_in_no_history() -> None:
    assert list_histories([make_entry(1, None), make_entry(2, source="kineto")]) == []


def test_a_restart_of_a_job_does_not_end_its_history() -> None:
    runs = [make_entry(number, job_id="7", attempt=number) for number in (2, 1)]
    assert [len(history.runs) for history in list_histories(runs)] == [2]


def make_levels(*hosts: str) -> list[RunEntry]:
    """Twelve runs, the newest first, of which the last six are slower and on the last host."""
    levels = [60e6 + 1e5 * (at * 7 % 5) + 30e6 * (at >= 6) for at in range(12)]
    return [make_entry(at, step_ns, host=hosts[(at >= 6) * -1]) for at, step_ns in enumerate(levels)][::-1]


def test_a_change_of_the_machine_is_no_change_of_the_script() -> None:
    assert find_run_changes(make_levels("a", "b"), {"cnn-11"}) == {}
    assert list(find_run_changes(make_levels("a"), {"cnn-11"})) == ["cnn-6"]


def test_no_change_is_told_before_all_runs_are_read() -> None:
    unread = dataclasses.replace(make_entry(99, None), is_read=False)
    assert find_run_changes([unread, *make_levels("a")], {"cnn-11"}) == {}


def test_a_change_lies_between_the_levels_even_where_ranks_cannot_tell_its_place() -> None:
    high, low = (72.0, 72.4, 72.6, 72.1, 72.9, 73.2, 72.3, 71.9), (66.8, 66.4, 66.9, 66.3, 66.5, 66.2, 66.7)
    (change,) = find_level_changes((*high, *low))
    assert change.at == len(high)


def test_each_line_has_its_own_colour_and_symbol_and_a_change_its_mark() -> None:
    dots = [Dot(at, 60e6, 55e6, 70e6, ("<b>", "x"), at == 1) for at in range(3)]
    levels = (Level(0, 0, 60e6), Level(1, 2, 66e6, 0.1))
    figure = build_history([Course("a", dots, levels), Course("b", dots[:1])], [("1 May", "abc")] * 3)
    first, second = figure["data"]
    assert first["marker"]["color"] != second["marker"]["color"]
    assert first["marker"]["symbol"] == ["circle", "circle-open", "circle"]
    assert first["customdata"][0] == "&lt;b&gt;<br>x"
    assert (first["error_y"]["array"][0], first["error_y"]["arrayminus"][0]) == (10.0, 5.0)
    assert [shape["type"] for shape in figure["layout"]["shapes"]] == ["line"] * 3
    assert [note["text"] for note in figure["layout"]["annotations"]] == ["▲ +10.0 %"]


def test_the_axis_begins_at_zero_unless_all_steps_are_alike() -> None:
    alike = Course("a", [Dot(0, 60e6, 58e6, 63e6, ())])
    assert find_base_ns([alike]) == pytest.approx(57e6)
    assert find_base_ns([alike, Course("b", [Dot(1, 20e6, 19e6, 21e6, ())])]) == 0.0
    assert find_base_ns([]) == 0.0
