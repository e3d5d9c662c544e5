"""Logging on the training thread is added up by library, and works as before."""

from __future__ import annotations

import logging
import sys
import threading
import time
import types
from pathlib import Path

import pytest

from tests.support import shapes
from tests.support.recording import record

SLOW_S = 0.002


class SlowHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        time.sleep(SLOW_S)


def train_and_log(log: logging.Logger) -> None:
    model = shapes.Net()
    optimizer = shapes.sgd(model)
    for batch in shapes.loader(160):
        shapes.train_on(model, optimizer, [batch])
        log.warning("step")


@pytest.fixture
def slow_log() -> logging.Logger:
    log = logging.Logger("slow")
    log.addHandler(SlowHandler())
    return log


def test_what_logging_takes_is_noted(slow_log: logging.Logger, tmp_path: Path) -> None:
    recorded = record(tmp_path, lambda: train_and_log(slow_log))
    noted = recorded.run.rank().manifest.facts["logging"]
    (entry,) = noted["libraries"]
    assert (entry["name"], entry["calls"]) == ("logging", len(recorded.train))
    assert noted["steps"] == len(recorded.train)
    assert entry["total_ns"] >= entry["calls"] * SLOW_S * 1e9 >= entry["longest_ns"] / 1000


def test_what_another_thread_logs_holds_nothing_up(slow_log: logging.Logger, tmp_path: Path) -> None:
    def loop() -> None:
        shapes.plain()
        thread = threading.Thread(target=slow_log.warning, args=("beside",))
        thread.start()
        thread.join()

    assert "logging" not in record(tmp_path, loop).run.rank().manifest.facts


def test_a_library_that_is_imported_later_is_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "lib" / "tensorboardX"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "writer.py").write_text(
        "class SummaryWriter:\n    def add_scalars(self):\n        self.add_scalar()\n    def add_scalar(self):\n        pass\n"
    )
    monkeypatch.syspath_prepend(str(folder.parent))
    for name in ("tensorboardX", "tensorboardX.writer"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    def loop() -> None:
        from tensorboardX.writer import SummaryWriter  # type: ignore[import-not-found]

        shapes.plain()
        for _ in range(3):
            SummaryWriter().add_scalars()

    (entry,) = record(tmp_path / "run", loop).run.rank().manifest.facts["logging"]["libraries"]
    assert (entry["name"], entry["calls"]) == ("TensorBoard", 3)
    writer = sys.modules["tensorboardX.writer"].SummaryWriter
    assert isinstance(vars(writer)["add_scalar"], types.FunctionType)
    assert not hasattr(vars(writer)["add_scalar"], "__wrapped__")


def test_logging_is_as_before_after_the_recording(tmp_path: Path) -> None:
    before = vars(logging.Logger)["callHandlers"]
    record(tmp_path, shapes.plain)
    assert vars(logging.Logger)["callHandlers"] is before
