"""What a tracker gets of a recording, and that no tracker holds up a training."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collector import OptionError, Profiler, trackers
from collector.launch.activation import read_settings
from collector.session import closing, tracking
from collector.session.beside import Beside
from profiler_server.report.brief import write_brief
from tests.support import shapes
from tests.support.scripts import run_script
from tests.support.waiting import wait_for

LIVE = "stepscope/live/step_seconds"
Call = tuple[dict[str, Any], int]


def train(count: int = 480) -> None:
    model = shapes.Net()
    shapes.train_on(model, shapes.sgd(model), shapes.loader(count))


def train_until(is_done: Callable[[], object]) -> None:
    """Train on; the recorder process writes steps every few seconds."""

    def go_on() -> bool:
        train(1600)
        return bool(is_done())

    wait_for(go_on)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no recorder process started: analyse() does its work here."""
    monkeypatch.setattr(Beside, "start", lambda self: None)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFILER_VERDICT", "1")
    monkeypatch.setattr(closing, "REPORT_S", 200.0)
    monkeypatch.setattr(tracking, "PATIENCE_S", 100.0)


def test_a_function_gets_figures_then_the_verdict_with_the_report(tmp_path: Path, alone: None, judged: None) -> None:
    calls: list[Call] = []
    reports: list[str] = []

    def log(values: dict[str, Any], step: int) -> None:
        calls.append((values, step))
        if "stepscope/report" in values:
            reports.append(Path(values["stepscope/report"]).read_text("utf-8"))

    profiler = Profiler(tmp_path / "run", window=None, log_to=log)
    train()
    run = profiler.analyse()
    (figures, step), (texts, last) = calls
    assert (figures, step, last) == (run.metrics(), 30, 30)
    assert [texts["stepscope/verdict"], *texts["stepscope/advice"].splitlines()] == write_brief(run)
    assert "<html" in reports[0]
    assert not Path(texts["stepscope/report"]).exists()


def test_live_means_come_while_the_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "EVERY_S", 0.05)
    live: list[Call] = []
    profiler = Profiler(
        tmp_path / "run", window=None, log_to=lambda values, step: live.append((values, step)) if LIVE in values else 0
    )
    train_until(lambda: len(live) > 1)
    profiler.analyse()
    (first, step), (_, later) = live[:2]
    assert step >= 50
    assert later >= step + 50
    phases = sum(value for name, value in first.items() if name.startswith("stepscope/live/phase_seconds/"))
    assert phases == pytest.approx(first[LIVE])
    assert {name.replace("/live", "") for name in first} < {*profiler.analyse().metrics()}


def test_a_tracker_that_fails_is_noted_and_called_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracking, "EVERY_S", 0.05)
    calls: list[int] = []

    def log(values: dict[str, Any], step: int) -> None:
        calls.append(step)
        raise ConnectionError("no way there")

    profiler = Profiler(tmp_path / "run", window=None, log_to=log)
    assert profiler._recording is not None
    notes = profiler._recording.context.notes
    train_until(lambda: "log_to" in notes.warnings)
    run = profiler.analyse()
    assert len(calls) == 1
    said = "Logging to function failed and is switched off: ConnectionError: no way there."
    assert [warning.text for warning in run.rank().manifest.warnings if warning.code == "log_to"] == [said]
    assert [record.getMessage() for record in caplog.records if said in record.getMessage()] == [
        f"stepscope: {said} The training goes on."
    ]


def test_a_tracker_that_never_answers_does_not_hold_up_the_end(
    tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracking, "PATIENCE_S", 0.3)
    answers = threading.Event()
    profiler = Profiler(tmp_path / "run", window=None, log_to=lambda values, step: answers.wait())
    train()
    assert profiler.analyse().rank().count_steps() == 30
    assert not answers.is_set()
    assert "function did not answer" in caplog.text
    answers.set()


def test_a_missing_library_is_one_line_and_the_recording_goes_on(
    tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trackers, "is_installed", lambda name: False)
    profiler = Profiler(tmp_path / "run", window=None, log_to="wandb")
    train()
    run = profiler.analyse()
    assert run.rank().count_steps() == 30
    (line,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert line == (
        "stepscope: Nothing is logged to wandb: wandb is not installed. The training and its recording go on."
    )
    assert "log_to" in [warning.code for warning in run.rank().manifest.warnings]


def test_a_folder_that_a_tracker_left_is_not_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "neptune").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not trackers.is_installed("neptune")


@pytest.mark.parametrize("name", ["wandb", "mlflow", "trackio"])
def test_without_a_run_in_the_tracker_one_line_says_so(
    tmp_path: Path, alone: None, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trackers, "is_installed", lambda name: True)
    profiler = Profiler(tmp_path / "run", window=None, log_to=name)
    train()
    profiler.analyse()
    assert f"nothing is logged to {name}: it had no active run before analyse()" in caplog.text


def test_other_ranks_log_nothing(tmp_path: Path, alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    calls: list[Call] = []
    profiler = Profiler(tmp_path / "run", window=None, log_to=lambda values, step: calls.append((values, step)))
    train()
    profiler.analyse()
    assert calls == []


def test_a_verdict_on_a_job_waits_for_all_ranks(
    tmp_path: Path, alone: None, judged: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(tracking, "PATIENCE_S", 0.5)
    calls: list[Call] = []
    profiler = Profiler(tmp_path / "run", window=None, log_to=lambda values, step: calls.append((values, step)))
    train()
    begun = time.monotonic()
    profiler.analyse()
    assert time.monotonic() - begun >= 0.5
    assert calls[1][0]["stepscope/verdict"] == f"for the verdict: stepscope report --brief {tmp_path / 'run'}"


def test_a_script_without_analyse_logs_at_its_exit(tmp_path: Path) -> None:
    said = run_script(
        tmp_path,
        """
        from stepscope import Profiler
        from tests.support import shapes
        def log(values, step):
            print(step, sorted(values)[-1])
        profiler = Profiler("run", window=None, log_to=log)
        model = shapes.Net()
        shapes.train_on(model, shapes.sgd(model), shapes.loader(480))
        """,
    )
    assert said == "30 stepscope/steps\n"


def test_a_name_that_is_no_tracker_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    takes = 'log_to takes "mlflow", "tensorboard", "trackio", "wandb", a SummaryWriter or a function, not '
    with pytest.raises(OptionError) as refused:
        Profiler(log_to="wanb")
    assert str(refused.value) == f"{takes}'wanb'"
    with pytest.raises(OptionError):
        Profiler(log_to=["wandb"])  # type: ignore[arg-type]
    assert read_settings(None, None, {"PROFILER_OPTIONS": '{"log_to": "wandb"}'}).options == {"log_to": "wandb"}
    assert read_settings(None, None, {"PROFILER_OPTIONS": '{"log_to": "wanb"}'}).options == {}
    assert takes in capsys.readouterr().err
