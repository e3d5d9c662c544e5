"""Checkpoints that the training thread waits for have a name."""

from __future__ import annotations

import importlib
import io
import sys
import threading
from pathlib import Path

import pytest
import torch

from collector.format.run import Run
from tests.support.recording import record


class Unsaveable:
    def __reduce__(self) -> str:
        raise OSError("the disk is full")


def train_and_save(path: Path, in_thread: bool) -> Run:
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def save() -> None:
        torch.save(model.state_dict(), io.BytesIO())

    def loop() -> None:
        for step in range(6):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
            if step % 3 == 2 and in_thread:
                thread = threading.Thread(target=save)
                thread.start()
                thread.join()
            elif step % 3 == 2:
                save()

    return record(path, loop).run


def test_a_save_of_the_training_thread_is_a_range(tmp_path: Path) -> None:
    rows = train_and_save(tmp_path, in_thread=False).table("ranges").to_pylist()
    assert [(row["name"], row["failed"]) for row in rows] == [("torch.save", False)] * 2
    assert all(row["duration_ns"] > 0 for row in rows)


def test_a_save_beside_the_training_is_none(tmp_path: Path) -> None:
    assert train_and_save(tmp_path, in_thread=True).rank().status("ranges").state != "there"


def test_saving_is_what_it_was_afterwards_and_errors_pass_through(tmp_path: Path) -> None:
    before = torch.save

    def loop() -> None:
        assert torch.save is not before
        torch.save(Unsaveable(), io.BytesIO())

    with pytest.raises(OSError, match="the disk is full"):
        record(tmp_path, loop)
    assert torch.save is before


LIBRARIES = {
    "safetensors.torch": """
def serialize_file(tensors, path): return len(tensors)
def save(tensors, path): return serialize_file(tensors, path)
""",
    "accelerate.accelerator": """
class Accelerator:
    def save_state(self, tensors, path): return len(tensors)
def save(tensors, path): return Accelerator().save_state(tensors, path)
""",
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("safetensors.torch", "safetensors.save_file"), ("accelerate.accelerator", "Accelerator.save_state")],
)
def test_a_library_that_is_imported_later_is_recorded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, expected: str
) -> None:
    package, _, module = name.partition(".")
    folder = tmp_path / "lib" / package
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / f"{module}.py").write_text(LIBRARIES[name])
    monkeypatch.syspath_prepend(str(folder.parent))
    for loaded in [key for key in sys.modules if key.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, loaded)

    def loop() -> None:
        saver = importlib.import_module(name)
        assert saver.save({"weight": 1}, "model") == 1

    watchers = list(sys.meta_path)
    run = record(tmp_path / "run", loop).run
    for loaded in (package, name):
        del sys.modules[loaded]
    assert [row["name"] for row in run.table("ranges").to_pylist()] == [expected]
    assert sys.meta_path == watchers


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_a_distributed_checkpoint_of_one_rank_is_a_range(tmp_path: Path) -> None:
    def loop() -> None:
        from torch.distributed import checkpoint

        checkpoint.save({"weight": torch.ones(4)}, checkpoint_id=tmp_path / "saved", no_dist=True)

    rows = record(tmp_path / "run", loop).run.table("ranges").to_pylist()
    assert [(row["name"], row["training"]) for row in rows] == [("torch.distributed.checkpoint.save", True)]
