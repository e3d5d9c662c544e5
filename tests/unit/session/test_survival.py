"""Training goes on and what was recorded is there, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collector import open_run, plugins
from collector.context.signals import SignalContext
from collector.format.schema.layout import events_path, rank_file, rank_path
from collector.notes import WORDS_FILE
from collector.ring.words import WordReader
from collector.session import recording
from collector.sidecar.process import recover_run
from tests.support import shapes
from tests.support.forking import ROOT, Forked
from tests.support.recording import assert_sound, record
from tests.support.waiting import wait_for

TRAINING = """
import sys, torch
from collector import Profiler
from tests.support import shapes
from tests.support.forking import ROOT, Forked
torch.set_num_threads(1)
profiler = Profiler(sys.argv[1], window=None)
model = shapes.Net()
optimizer = shapes.sgd(model)
for epoch in range(100000):
    shapes.train_on(model, optimizer, shapes.loader())
    print(epoch, flush=True)
"""


def start_training(path: Path) -> subprocess.Popen[str]:
    return Forked(
        [sys.executable, "-c", TRAINING, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def wait_for_epochs(training: subprocess.Popen[str], epochs: int) -> None:
    assert training.stdout is not None
    for _ in range(epochs):
        assert training.stdout.readline()


def find_sidecar(training: subprocess.Popen[str]) -> int:
    children = Path(f"/proc/{training.pid}/task/{training.pid}/children")
    wait_for(lambda: len(children.read_text().split()) > 1)  # the first is what forks
    return int(children.read_text().split()[-1])


def has_ended(path: Path) -> bool:
    try:
        return json.loads(rank_file(path, 0).read_text())["ended_unix_ns"] is not None
    except (OSError, ValueError):
        return False


def test_a_killed_run_is_finished_by_the_sidecar_and_shown_as_crashed(tmp_path: Path) -> None:
    training = start_training(tmp_path)
    wait_for_epochs(training, 20)
    training.kill()
    training.communicate()
    wait_for(lambda: has_ended(tmp_path))
    run = open_run(tmp_path)
    assert run.state == "crashed"
    assert (run.frame("steps").kind == "train").sum() >= 200


def test_another_sidecar_takes_the_place_of_one_that_was_killed_and_loses_nothing(tmp_path: Path) -> None:
    training = start_training(tmp_path)
    wait_for_epochs(training, 20)
    first = find_sidecar(training)
    os.kill(first, signal.SIGKILL)
    while find_sidecar(training) == first:
        wait_for_epochs(training, 1)
    wait_for_epochs(training, 5)
    training.kill()
    training.communicate()
    wait_for(lambda: has_ended(tmp_path))
    assert_whole(tmp_path, 250)
    warnings = {warning.code: warning.text for warning in open_run(tmp_path).rank(0).manifest.warnings}
    assert "was ended by signal 9 and was started again" in warnings["sidecar_ended"]


def test_a_run_whose_two_processes_were_killed_together_is_recovered_to_what_was_last_saved(tmp_path: Path) -> None:
    training = start_training(tmp_path)
    log = events_path(rank_path(tmp_path, 0)) / WORDS_FILE
    wait_for_epochs(training, 20)
    wait_for(lambda: read_words_of(log) >= 200)
    seen = read_words_of(log)
    # The head that counts the steps may be newer than the words beside it; those of the next copy are not older.
    wait_for(lambda: read_words_of(log) > seen)
    os.kill(find_sidecar(training), signal.SIGKILL)
    training.kill()
    training.communicate()
    assert open_run(tmp_path).state == "crashed"
    assert recover_run(tmp_path) == {0: "recovered"}
    assert_whole(tmp_path, 200)
    assert recover_run(tmp_path) == {0: "complete"}


def test_a_log_that_is_cut_off_or_removed_does_not_end_the_training(tmp_path: Path) -> None:
    training = start_training(tmp_path)
    wait_for_epochs(training, 5)
    for path in events_path(rank_path(tmp_path, 0)).glob("*.ring"):
        os.truncate(path, 0)
    wait_for_epochs(training, 5)
    (events_path(rank_path(tmp_path, 0)) / WORDS_FILE).unlink()
    wait_for_epochs(training, 5)
    training.kill()
    training.communicate()
    wait_for(lambda: has_ended(tmp_path))
    assert_whole(tmp_path, 150)


def assert_whole(path: Path, least: int) -> None:
    """Check that there are so many training steps, none missing and no hole between them."""
    steps = open_run(path).frame("steps")
    train = steps[steps.kind == "train"]
    assert len(train) >= least
    assert train.step.tolist() == list(range(1, len(train) + 1))
    assert (steps.start_ns.shift(-1) - steps.start_ns - steps.duration_ns).dropna().eq(0).all()


def read_words_of(log: Path) -> int:
    """Return how many steps the copy of the event log knows of."""
    return WordReader(log).steps


def test_a_live_run_is_not_recovered(tmp_path: Path) -> None:
    training = start_training(tmp_path)
    try:
        wait_for_epochs(training, 1)
        wait_for(lambda: rank_file(tmp_path, 0).exists())
        assert recover_run(tmp_path) == {0: "recording"}
    finally:
        training.kill()
        training.communicate()
        wait_for(lambda: has_ended(tmp_path))


def test_a_signal_that_raises_is_switched_off_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        name = "broken"
        option = ""

        def install(self, context: SignalContext) -> None:
            raise RuntimeError("no such thing")

        def remove(self) -> None: ...

    class Late:
        name = "late"
        option = ""

        def install(self, context: SignalContext) -> None:
            context.boundaries.append(self.at_step)

        def at_step(self, step: int) -> None:
            raise RuntimeError("at a boundary")

        def remove(self) -> None: ...

    real = plugins.find_plugins

    def find(room: Any, name: str) -> tuple[Any, ...]:
        return (*real(room, name), Broken, Late) if name == "SIGNAL" else real(room, name)

    monkeypatch.setattr(recording, "find_plugins", find)
    recorded = record(tmp_path, shapes.plain)
    assert_sound(recorded)
    assert len(recorded.train) == 10
    states = {signal.name: signal for signal in recorded.run.rank(0).manifest.signals}
    assert states["broken"].state == "failed"
    assert "no such thing" in states["broken"].reason
    assert states["optimizer"].state == "on"


def test_what_was_there_without_a_manifest_is_set_aside_too(tmp_path: Path) -> None:
    rank_path(tmp_path, 0).mkdir(parents=True)
    events_path(rank_path(tmp_path, 0)).mkdir()
    os.utime(events_path(rank_path(tmp_path, 0)), (0, 0))
    assert len(record(tmp_path, shapes.plain).train) == 10
    assert len(list((tmp_path / "earlier").iterdir())) == 1
