"""Calls of libraries that hold the training thread: logging is added up, checkpoints have a name, and both work as before."""

from __future__ import annotations

import importlib
import io
import logging
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support import shapes
from tests.support.recording import record

SLOW_S = 0.002


class SlowHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        time.sleep(SLOW_S)


class Unsaveable:
    def __reduce__(self) -> str:
        raise OSError("the disk is full")


@pytest.fixture
def slow_log() -> logging.Logger:
    log = logging.Logger("slow")
    log.addHandler(SlowHandler())
    return log


def train_and(act: Callable[[], object]) -> None:
    """Train six steps, and do something after each second one."""
    model = shapes.Net()
    optimizer = shapes.sgd(model)
    for step, batch in enumerate(shapes.loader(96), 1):
        shapes.train_on(model, optimizer, [batch])
        if step % 2 == 0:
            act()


def on_a_thread(act: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        thread = threading.Thread(target=act)
        thread.start()
        thread.join()

    return run


def hold_up(log: logging.Logger) -> None:
    log.warning("step")
    torch.save({"weight": torch.ones(4)}, io.BytesIO())


def test_what_the_training_thread_logs_and_saves_is_noted(slow_log: logging.Logger, tmp_path: Path) -> None:
    before = vars(logging.Logger)["callHandlers"], torch.save
    run = record(tmp_path, lambda: train_and(lambda: hold_up(slow_log))).run
    noted = run.rank().manifest.facts["logging"]
    (entry,) = noted["libraries"]
    assert (entry["name"], entry["calls"], noted["steps"]) == ("logging", 3, 6)
    assert entry["total_ns"] >= entry["calls"] * SLOW_S * 1e9 >= entry["longest_ns"] / 1000
    rows = run.table("ranges").to_pylist()
    assert [(row["name"], row["failed"], row["training"]) for row in rows] == [("torch.save", False, True)] * 3
    assert all(row["duration_ns"] > 0 for row in rows)
    assert (vars(logging.Logger)["callHandlers"], torch.save) == before


def test_what_another_thread_logs_or_saves_holds_nothing_up(slow_log: logging.Logger, tmp_path: Path) -> None:
    run = record(tmp_path, lambda: train_and(on_a_thread(lambda: hold_up(slow_log)))).run
    assert "logging" not in run.rank().manifest.facts
    assert run.rank().status("ranges").state != "there"


def test_errors_of_saving_pass_through(tmp_path: Path) -> None:
    before = torch.save

    def loop() -> None:
        assert torch.save is not before
        torch.save(Unsaveable(), io.BytesIO())

    with pytest.raises(OSError, match="the disk is full"):
        record(tmp_path, loop)
    assert torch.save is before


LIBRARIES = {
    "safetensors.torch": """
def serialize_file(): pass
def use(): serialize_file()
""",
    "accelerate.accelerator": """
class Accelerator:
    def save_state(self): pass
def use(): Accelerator().save_state()
""",
    "tensorboardX.writer": """
class SummaryWriter:
    def add_scalars(self): self.add_scalar()
    def add_scalar(self): pass
def use(): SummaryWriter().add_scalars()
""",
}


@pytest.mark.parametrize(
    ("name", "ranges", "logged"),
    [
        ("safetensors.torch", ["safetensors.save_file"], []),
        ("accelerate.accelerator", ["Accelerator.save_state"], []),
        ("tensorboardX.writer", [], [("TensorBoard", 1)]),
    ],
)
def test_a_library_that_is_imported_later_is_watched_and_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, ranges: list[str], logged: list[tuple[str, int]]
) -> None:
    package, _, module = name.partition(".")
    folder = tmp_path / "lib" / package
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / f"{module}.py").write_text(LIBRARIES[name])
    monkeypatch.syspath_prepend(str(folder.parent))
    for loaded in [key for key in sys.modules if key.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, loaded)
    watchers = list(sys.meta_path)
    run = record(tmp_path / "run", lambda: importlib.import_module(name).use()).run
    library: Any = sys.modules[name]
    for loaded in (package, name):
        del sys.modules[loaded]
    assert sys.meta_path == watchers
    names = run.frame("ranges").name.tolist() if ranges else []
    facts = run.rank().manifest.facts.get("logging", {"libraries": []})
    assert (names, [(entry["name"], entry["calls"]) for entry in facts["libraries"]]) == (ranges, logged)
    owners = [library, *(value for value in vars(library).values() if isinstance(value, type))]
    assert not [value for owner in owners for value in vars(owner).values() if hasattr(value, "__wrapped__")]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_a_distributed_checkpoint_of_one_rank_is_a_range(tmp_path: Path) -> None:
    def loop() -> None:
        from torch.distributed import checkpoint

        checkpoint.save({"weight": torch.ones(4)}, checkpoint_id=tmp_path / "saved", no_dist=True)

    rows = record(tmp_path / "run", loop).run.table("ranges").to_pylist()
    assert [(row["name"], row["training"]) for row in rows] == [("torch.distributed.checkpoint.save", True)]
