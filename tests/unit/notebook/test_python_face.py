"""A run as a value in Python: what it is called, what it shows of itself, and its totals."""

from __future__ import annotations

import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import collector
from collector.format.schema import layout
from collector.format.schema.errors import RunNotFoundError
from collector.plugins import find_plugins
from tests.support.runs import MS, RunPlan, build_run
from tests.support.tables import edit_manifest, stage, write_rows


def test_a_run_is_opened_by_its_name_or_id_as_the_commands_do(tmp_path: Path) -> None:
    build_run(tmp_path / "team/digits", RunPlan(steps=3))
    assert collector.open_run("team/digits", base_dir=tmp_path).path == tmp_path / "team/digits"
    assert collector.open_run("digits", base_dir=str(tmp_path)).path == tmp_path / "team/digits"
    assert collector.open_run(tmp_path / "team/digits", base_dir=tmp_path / "team").path == tmp_path / "team/digits"
    build_run(tmp_path / "other/digits", RunPlan(steps=3))
    with pytest.raises(RunNotFoundError, match="other/digits, team/digits"):
        collector.open_run("digits", base_dir=tmp_path)
    with pytest.raises(RunNotFoundError, match="There is no run 'letters'"):
        collector.open_run("letters", base_dir=tmp_path)


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000, "../outside", ""])
def test_what_can_be_no_run_is_a_plain_error(tmp_path: Path, name: str) -> None:
    for base_dir in (None, tmp_path):
        with pytest.raises(RunNotFoundError):
            collector.open_run(name, base_dir=base_dir)


def test_a_run_says_its_name_state_ranks_and_steps(tmp_path: Path) -> None:
    run = collector.open_run(build_run(tmp_path / "digits", RunPlan(steps=7, ranks=2)))
    assert repr(run) == "Run('digits', complete, 2 ranks, 7 steps)"
    assert repr(run.rank(1)) == "RankRun(1, complete, 7 steps)"


def test_a_run_that_vanished_still_has_a_text(tmp_path: Path) -> None:
    path = build_run(tmp_path / "digits", RunPlan(steps=3))
    run = collector.open_run(path)
    rank = run.rank()
    layout.rank_file(path, 0).write_text("{", encoding="utf-8")
    assert "rank.json" in repr(run)
    assert "rank.json" in repr(rank)
    assert "rank.json" in run._repr_html_()


def test_what_a_notebook_shows_is_small_and_escaped(tmp_path: Path) -> None:
    path = build_run(tmp_path / "<script>alert(1)", RunPlan(steps=3))
    shown = collector.open_run(path)._repr_html_()
    assert "<script" not in shown
    assert "&lt;script&gt;alert(1)" in shown
    assert len(shown) < 2_000
    totals = collector.open_run(path).statistics()._repr_html_()
    assert "<script" not in totals


def test_totals_by_stage_and_kind_equal_the_rows_of_the_table(tmp_path: Path) -> None:
    run = collector.open_run(build_run(tmp_path / "digits"))
    found = run.statistics()
    manifest = run.rank().manifest
    assert manifest.ended_unix_ns is not None
    assert found.wall_ns == manifest.ended_unix_ns - manifest.started_unix_ns
    assert found.steps == 40
    rows = run.table("stages").to_pylist()
    for entry in found.table.to_pylist():
        same = [row for row in rows if (row["stage"], row["kind"]) == (entry["stage"], entry["kind"])]
        assert entry["count"] == len(same)
        assert entry["total_ns"] == sum(row["duration_ns"] for row in same)
        assert entry["items"] == sum(row["items"] for row in same)
        assert entry["replicas"] == len({row["replica"] for row in same})
        assert entry["wall_frac"] == pytest.approx(entry["total_ns"] / found.wall_ns / entry["replicas"])
    assert sum(found.table["count"].to_pylist()) == len(rows)
    assert list(found.frame().stage.unique()) == ["read", "transform", "collate"]
    assert "read, loader 0" in str(found)


def test_the_start_of_the_recorder_is_no_wall_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find, slow_ns = find_plugins, 300 * MS

    def find_slowly(room: ModuleType, name: str) -> tuple[Any, ...]:
        time.sleep(slow_ns / 1e9)
        return find(room, name)

    monkeypatch.setattr("collector.session.recording.find_plugins", find_slowly)
    began_ns = time.time_ns()
    run = collector.Profiler(tmp_path / "run", window=None).analyse()
    assert run.rank().manifest.started_unix_ns >= began_ns + slow_ns


def test_a_run_without_steps_has_totals_and_a_wall_time(tmp_path: Path) -> None:
    path = build_run(tmp_path / "resize", RunPlan(steps=1))
    layout.table_file(layout.rank_path(path, 0), "steps").unlink()
    rows = [stage("Decode", replica=n, loader=None, duration_ns=40 * MS, bytes=10, cpu_ns=None) for n in (0, 1)]
    write_rows(path, "stages", rows)
    start = collector.open_run(path).rank().manifest.started_unix_ns
    edit_manifest(path, ended_unix_ns=start + 100 * MS)
    found = collector.open_run(path).statistics()
    assert (found.steps, found.wall_ns) == (0, 100 * MS)
    (row,) = found.table.to_pylist()
    assert (row["stage"], row["replicas"], row["total_ns"], row["bytes"]) == ("Decode", 2, 80 * MS, 20)
    assert row["wall_frac"] == pytest.approx(0.4)
    assert row["cpu_ns"] is None
    assert "0.100 s of wall time, 0 steps" in str(found)
