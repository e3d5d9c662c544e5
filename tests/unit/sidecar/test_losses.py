"""Steps that the event log could not hold until they were read are told of, wherever the run is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.context.signals import SignalContext
from collector.format.run import Run
from collector.options import parse_options
from collector.ring import words
from collector.session import recording as recording_module
from collector.session.recording import Recording
from collector.sidecar.coverage_warnings import warn_of_lost_steps
from collector.sidecar.recorder import Recorder
from profiler_server.report.building import build_report
from tests.support import shapes
from tests.support.scripts import run_script

STEPS = 400


def overflow(path: Path, monkeypatch: pytest.MonkeyPatch) -> Recording:
    """Train far more steps than the log holds while nobody reads it, and nothing after that."""
    monkeypatch.setattr(recording_module, "WordLog", lambda file, **more: words.WordLog(file, 1 << 11, **more))
    recording = Recording(path, parse_options({"window": None}), with_sidecar=False)
    recording.resume()
    model = shapes.Net()
    optimizer = shapes.sgd(model)
    for _ in range(STEPS // 10):
        shapes.train_on(model, optimizer, shapes.loader())
    return recording


def test_an_overflow_that_is_found_only_at_the_end_keeps_the_newest_steps_and_is_told_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = overflow(tmp_path, monkeypatch)
    context: SignalContext = recording.context
    recording.leave()
    assert words.WordReader(context.log.path).steps == context.steps.ended == STEPS
    recording.finish()
    run = Run(tmp_path)
    rank = run.rank(0)
    steps = rank.table("steps").to_pandas()
    train = steps[steps.kind == "train"].step.tolist()
    assert 50 < len(train) < STEPS
    assert train == list(range(STEPS - len(train) + 1, STEPS + 1))
    assert rank.manifest.events_lost > 0
    (loss,) = [warning.text for warning in rank.manifest.warnings if warning.code == "steps_lost"]
    percent = round(100 * (STEPS - len(train)) / STEPS)
    assert loss.startswith(f"{percent} % of the steps were lost: 400 steps ended and {len(train)} were recorded.")
    assert any(loss in text for text in build_report(run)["warnings"])


def test_a_recorder_that_is_lapped_while_the_training_goes_on_loses_only_what_was_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = overflow(tmp_path, monkeypatch)
    recorder = Recorder(recording.place.rank_folder)
    recorder.poll()
    recorder.flush()
    shapes.plain()
    recorder.poll()
    recording.leave()
    recorder.finish("complete")
    rank = Run(tmp_path).rank(0)
    steps = rank.table("steps").to_pandas()
    train = steps[steps.kind == "train"].step.tolist()
    assert train == sorted(set(train))
    assert train[-10:] == list(range(STEPS + 1, STEPS + 11))
    assert 50 < len(train) < STEPS
    assert [warning.code for warning in rank.manifest.warnings] == ["steps_lost"]


def test_a_stopped_recorder_process_that_goes_on_at_the_end_is_told_of_on_stderr(tmp_path: Path) -> None:
    printed = run_script(
        tmp_path,
        """
        import os, signal, sys, threading, torch
        from collector import Profiler
        from collector.ring import words
        from collector.session import recording
        recording.WordLog = lambda *given, **more: words.WordLog(*given, **{**more, "capacity": 1 << 10})
        sys.stderr = sys.stdout
        torch.set_num_threads(1)
        profiler = Profiler("out", window=None, resources=False)
        model = torch.nn.Linear(1, 1)
        model(torch.ones(1, 1)).sum().backward()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sidecar = profiler._recording._beside.pid
        os.kill(sidecar, signal.SIGSTOP)
        for _ in range(2000):
            optimizer.step()
            profiler.step()
        os.kill(sidecar, signal.SIGCONT)
        profiler.analyse()
        """,
    )
    recorded = Run(tmp_path / "out").rank(0).count_steps()
    assert 250 < recorded < 1000
    assert f"stepscope: recorded {recorded:,} steps in" in printed
    assert f"of the steps were lost: 2,000 steps ended and {recorded:,} were recorded" in printed


@pytest.mark.parametrize(
    ("ended", "recorded", "part"),
    [(10, 10, ""), (100_000, 99_999, "less than 1 %"), (402_000, 2_000, "more than 99 %")],
)
def test_a_loss_is_never_rounded_to_nothing_or_to_all(ended: int, recorded: int, part: str) -> None:
    assert [warning.text.split(" of the")[0] for warning in warn_of_lost_steps(ended, recorded)] == [part][: len(part)]
