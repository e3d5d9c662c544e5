"""What a training says on the terminal at its end: what bounds it, what to change, what that gains."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from collector import open_run
from collector.session import closing
from collector.session.closing import judge_briefly
from profiler_server.report.brief import write_brief
from tests.support.cases import PLANTED, build_case_run
from tests.support.runs import RunPlan, build_run
from tests.unit.launch.programs import run_launcher, write_script
from tests.unit.session.test_ending import run_script

TRAINING = """
from collector import Profiler
from tests.support import shapes
model = shapes.Net()
profiler = Profiler("run", window=None)
shapes.train_on(model, shapes.sgd(model), shapes.loader(480))
profiler.analyse()
print("trained")
"""


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFILER_VERDICT", "1")
    monkeypatch.setattr(closing, "PATIENCE_S", 120.0)


def test_a_planted_cause_is_told_in_three_lines(tmp_path: Path) -> None:
    lines = write_brief(build_case_run(tmp_path / "run", PLANTED["no_workers"]))
    for line, word in zip(lines, ("waits", "num_workers", "instead of"), strict=True):
        assert word in line


def test_a_healthy_run_is_told_that_nothing_is_to_change(tmp_path: Path) -> None:
    bound, change = write_brief(open_run(build_run(tmp_path / "run", RunPlan(steps=100))))
    assert bound.startswith("Compute-bound: ")
    assert change.startswith("No change is sure to save ")


def is_verdict(lines: list[str]) -> bool:
    """Say whether they are the verdict, or where the machine is too busy for it in time, how to get it."""
    told = all(line.startswith("stepscope: ") for line in lines)
    return told and (2 <= len(lines) <= 3 or [line.split(":")[1] for line in lines] == [" for the verdict"])


def test_a_training_says_them_after_where_it_is(tmp_path: Path, said: None) -> None:
    done = run_script(tmp_path, TRAINING)
    assert done.stdout == "trained\n"
    first, *lines = done.stderr.splitlines()
    assert first.startswith("stepscope: recorded 30 steps in run; ")
    assert is_verdict(lines), done.stderr


def test_stepscope_run_says_them_too(tmp_path: Path, said: None) -> None:
    script = write_script(
        tmp_path,
        "from tests.support import shapes\nmodel = shapes.Net()\nshapes.train_on(model, shapes.sgd(model), shapes.loader(480))\n",
    )
    launched = run_launcher(tmp_path, "-o", "run", "--options", '{"window": null}', script)
    assert launched.returncode == 0
    first, *lines = launched.stderr.splitlines()
    assert first.startswith("stepscope: recorded 30 steps in run; ")
    assert is_verdict(lines), launched.stderr


def test_an_exception_is_followed_by_no_verdict(tmp_path: Path, said: None) -> None:
    script = write_script(
        tmp_path,
        "from tests.support import shapes\nmodel = shapes.Net()\nshapes.train_on(model, shapes.sgd(model), shapes.loader(480))\nraise RuntimeError('boom')\n",
    )
    launched = run_launcher(tmp_path, "-o", "run", "--options", '{"window": null}', script)
    assert launched.stderr.splitlines()[-1].startswith("stepscope: recorded 30 steps in run; ")


def test_a_run_that_cannot_be_judged_is_followed_by_silence(tmp_path: Path, said: None) -> None:
    assert judge_briefly(tmp_path / "nothing") == []


def test_what_takes_too_long_is_not_waited_for(tmp_path: Path, said: None, monkeypatch: pytest.MonkeyPatch) -> None:
    build_run(tmp_path / "run", RunPlan(steps=100))
    monkeypatch.setattr(closing, "PATIENCE_S", 0.01)
    (line,) = judge_briefly(tmp_path / "run")
    assert line == f"for the verdict: stepscope report --brief {tmp_path / 'run'}"


def test_a_job_of_several_ranks_is_not_held_for_it(tmp_path: Path, said: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("it judged"))
    (line,) = judge_briefly(tmp_path / "run", world_size=2)
    assert line == f"for the verdict: stepscope report --brief {tmp_path / 'run'}"


def test_names_of_the_users_cannot_steer_the_terminal(
    tmp_path: Path, said: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = write_script(tmp_path, "#!" + sys.executable + "\nprint('\\x1b[2Jgone')\n")
    os.chmod(speaker, 0o700)
    monkeypatch.setattr(sys, "executable", str(speaker))
    assert judge_briefly(tmp_path) == ["?[2Jgone"]


def test_the_lines_can_be_left_out(tmp_path: Path) -> None:
    build_run(tmp_path / "run", RunPlan(steps=100))
    assert judge_briefly(tmp_path / "run") == []  # as tests/conftest.py asks
