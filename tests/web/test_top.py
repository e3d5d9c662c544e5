"""`stepscope top`: a picture of a run that records, which ends with the run; one picture for a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from collector.format.schema import layout
from collector.format.schema.errors import RunError
from profiler_server.commands import top
from profiler_server.derive.store import Store
from tests.support.live import build_ended_run, build_live_run, edit_rank, edit_run
from tests.support.panorama import build_hostile
from tests.support.runs import RunPlan, build_run
from tests.web.test_command_line import assert_refused, run


def watch(path: Path, monkeypatch: pytest.MonkeyPatch, happen: Callable[[int], None], width: int = 80) -> str:
    """Watch a run on a terminal. `happen` is called between two pictures with their number. Return what was drawn."""
    console = Console(file=StringIO(), force_terminal=True, width=width, height=60)
    seen: list[int] = []

    def wait(_: float) -> None:
        seen.append(len(seen))
        assert len(seen) < 1000
        happen(len(seen))

    monkeypatch.setattr(top, "time", SimpleNamespace(monotonic=time.monotonic, sleep=wait))
    with Store().held():
        top.watch(path, 0, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_pipe_gets_one_picture_without_colours(tmp_path: Path) -> None:
    build_live_run(tmp_path / "job")
    done = run("top", "job", "--summary-base-dir", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "job  recording, step 40"
    assert any(line.startswith("Backward") and line.endswith(" 36.0 ms  56.2 %") for line in lines)
    assert any(line.startswith("worker_queue") and "of 4, empty" in line for line in lines)
    assert any(line.startswith("Compute-bound") for line in lines)
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    build_hostile(tmp_path / "hostile")
    done = run("top", tmp_path / "hostile")
    assert done.returncode == 0, done.stderr
    assert max(len(line) for line in done.stdout.splitlines()) <= columns
    assert "\u202e" not in done.stdout
    assert ("█" in done.stdout) == (columns > 30)


def test_the_picture_ends_with_the_run_and_leaves_its_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build_live_run(tmp_path / "job")

    def end(seen: int) -> None:
        if seen == 3:
            edit_rank(path, state="complete", ended_unix_ns=time.time_ns())

    drawn = watch(path, monkeypatch, end)
    first, last = drawn.split("job")[1], drawn.split("job")[-1]
    assert "recording" in first
    assert "complete, step 40" in last
    assert "Compute-bound" in last


def test_a_run_whose_recorder_is_at_work_is_not_crashed_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build_live_run(tmp_path / "job")

    def end(seen: int) -> None:
        if seen == 1:
            edit_rank(path, pid=2**22 - 1, ended_unix_ns=None)
        if seen == 3:
            edit_rank(path, state="complete", ended_unix_ns=time.time_ns())

    drawn = watch(path, monkeypatch, end)
    assert "crashed" not in drawn
    assert top.ENDING in drawn
    assert "complete" in drawn


def test_a_run_that_nobody_completes_ends_as_crashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build_live_run(tmp_path / "job")
    edit_rank(path, pid=2**22 - 1, ended_unix_ns=None)
    monkeypatch.setattr(top, "SETTLE_S", 0.0)
    assert "crashed" in watch(path, monkeypatch, lambda seen: None)


def test_a_run_that_is_removed_ends_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build_live_run(tmp_path / "job")
    with pytest.raises(RunError, match="job"):
        watch(path, monkeypatch, lambda seen: layout.rank_file(path, 0).unlink())


def test_ctrl_c_ends_it_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_live_run(tmp_path / "job")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(top, "draw", interrupt)
    done = run("top", tmp_path / "job")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_training_that_just_begins_and_a_rank_that_is_not_there_are_said(tmp_path: Path) -> None:
    path = build_live_run(tmp_path / "job")
    assert_refused(run("top", path, "--rank", "3"), "rank 3", "yet")
    layout.rank_file(path, 0).unlink()
    assert_refused(run("top", path), "no data of any rank yet")
    assert_refused(run("top", tmp_path / "none"), "none")


def test_a_run_without_steps_and_one_that_ended_are_shown_once(tmp_path: Path) -> None:
    build_run(tmp_path / "empty", RunPlan(steps=0, operators=False))
    assert "No steady step yet." in run("top", tmp_path / "empty").stdout
    build_ended_run(tmp_path / "old", 3600.0)
    edit_run(tmp_path / "old", name="old\x1b[31m\nred")
    assert run("top", tmp_path / "old").stdout.startswith("old?[31m?red  complete")
