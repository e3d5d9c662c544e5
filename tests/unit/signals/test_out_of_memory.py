"""Memory that runs out while a training is recorded: what asked for it, what held it, and that looking changes nothing."""

from __future__ import annotations

import gc
import sys
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from collector.context.shortage import find_memory_error, read_shortage
from collector.edge import Edge
from collector.notebook.run import Run
from collector.options import parse_options
from collector.session.recording import Recording

TOO_MANY = 1 << 50
MESSAGE = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which 1.10 GiB is free. "
    "Process 4711 has 6.00 GiB memory in use. Including non-PyTorch memory, this process has 72.00 GiB memory in use. "
    "Of the allocated memory 70.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated."
)


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        scores = x.unsqueeze(1) * x.unsqueeze(2)
        return self.proj(x) if x.sum() < 100 else torch.empty(TOO_MANY) + scores


class Net(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, x: Any) -> Any:
        return self.blocks(x)


class FailsBackward(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return torch.empty(TOO_MANY)


class FailingAdam(torch.optim.Adam):  # type: ignore[misc]
    is_full = False

    def step(self, closure: Any = None) -> Any:
        return torch.empty(TOO_MANY) if self.is_full else super().step(closure)


class FailingData(torch.utils.data.Dataset[Any]):  # type: ignore[misc]
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return torch.empty(TOO_MANY)


def explain(path: Path, train: Callable[[], object]) -> dict[str, Any]:
    """Return the fact of a training that an error ends; empty if memory did not run out."""
    recording = Recording(path, parse_options({"window": None}), with_sidecar=False)
    recording.resume()
    with Edge(recording.explain):
        train()
    recording.finish()
    manifest = Run(path).rank().manifest
    assert [signal.state for signal in manifest.signals if signal.name == "out_of_memory"] == ["on"]
    fact = manifest.facts.get("out_of_memory", {})
    assert isinstance(fact, dict)
    return fact


def make_training() -> tuple[Net, FailingAdam]:
    torch.manual_seed(0)
    model = Net()
    return model, FailingAdam(model.parameters())


def take_steps(model: Net, optimizer: FailingAdam, count: int = 3) -> None:
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.zeros(4, 16)).sum().backward()
        optimizer.step()


def test_the_line_module_and_tensors_that_asked_are_named(tmp_path: Path) -> None:
    model, optimizer = make_training()

    def train() -> None:
        kept = [torch.zeros(4, 16) for _ in range(5)]
        take_steps(model, optimizer)
        model(torch.full((4, 16), 100.0))
        del kept

    fact = explain(tmp_path, train)
    parameters = sum(4 * each.numel() for each in model.parameters())
    assert fact["device"] == "cpu"
    assert fact["requested_bytes"] == 4 * TOO_MANY
    assert fact["total_bytes"] > fact["process_bytes"] > 1 << 20
    line = next(
        n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "torch.empty(TOO_MANY) +" in text
    )
    assert (fact["place"], fact["phase"]) == (f"test_out_of_memory.py:{line}", "forward")
    assert fact["function"] == ("Block.forward" if sys.version_info >= (3, 11) else "forward")
    assert fact["module"] == "blocks.0 (Block)"
    assert (fact["parameter_bytes"], fact["gradient_bytes"]) == (parameters, parameters)
    assert fact["optimizer_bytes"] == 2 * parameters + 4 * len(list(model.parameters()))
    shown = [(each["name"], each["bytes"], each["shape"], each["count"]) for each in fact["tensors"]]
    assert shown[:2] == [("scores", 4096, [4, 16, 16], 1), ("kept", 5 * 256, [4, 16], 5)]
    assert {each["dtype"] for each in fact["tensors"]} == {"float32"}


@pytest.mark.parametrize("phase", ["backward", "optimizer", "data_wait", ""])
def test_the_phase_is_that_of_the_call_that_failed(phase: str, tmp_path: Path) -> None:
    model, optimizer = make_training()

    def train() -> None:
        take_steps(model, optimizer, 1)
        if phase == "backward":
            FailsBackward.apply(model(torch.zeros(4, 16))).sum().backward()
        elif phase == "optimizer":
            optimizer.is_full = True
            take_steps(model, optimizer)
        elif phase == "data_wait":
            list(torch.utils.data.DataLoader(FailingData()))
        torch.empty(TOO_MANY)

    assert explain(tmp_path, train)["phase"] == phase


def test_tensors_of_another_device_are_not_counted(tmp_path: Path) -> None:
    def train() -> None:
        take_steps(*make_training())
        raise torch.OutOfMemoryError(MESSAGE)

    fact = explain(tmp_path, train)
    assert (fact["device"], fact["parameter_bytes"], fact["tensors"]) == ("cuda:1", 0, [])


GIB = 1 << 30
TEXTS: dict[str, tuple[BaseException, str, dict[str, float]]] = {
    "CUDA": (
        torch.OutOfMemoryError(MESSAGE),
        "cuda:1",
        {"requested": 2, "total": 79.15, "free": 1.1, "process": 72, "allocated": 70, "unallocated": 0.5},
    ),
    "CUDA before 2.1": (
        RuntimeError(
            "CUDA out of memory. Tried to allocate 2.25 GiB (GPU 0; 6.00 GiB total capacity; 768.00 MiB already allocated; "
            "3.00 GiB free; 1.25 GiB reserved in total by PyTorch)"
        ),
        "cuda:0",
        {"requested": 2.25, "total": 6, "free": 3, "allocated": 0.75},
    ),
    "driver": (RuntimeError("CUDA error: out of memory"), "", {}),
    "HIP": (RuntimeError("HIP out of memory. Tried to allocate 1.00 GiB. GPU 3 has"), "cuda:3", {"requested": 1}),
    "MPS": (
        RuntimeError(
            "MPS backend out of memory (MPS allocated: 17.50 GiB, other allocations: 416.00 MiB, max allowed: 18.25 GiB). "
            "Tried to allocate 256.00 MiB on private pool."
        ),
        "mps",
        {"requested": 0.25, "total": 18.25, "allocated": 17.5},
    ),
    "processor": (
        RuntimeError(
            "[enforce fail] err == 0. DefaultCPUAllocator: not enough memory: you tried to allocate 1073741824 bytes."
        ),
        "cpu",
        {"requested": 1},
    ),
    "Python": (MemoryError(), "cpu", {}),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_figures_are_those_of_the_text(name: str) -> None:
    error, device, sizes = TEXTS[name]
    assert find_memory_error(error, torch.OutOfMemoryError) is error
    found = read_shortage(error)
    assert found.device == device
    assert found.sizes == {f"{key}_bytes": int(value * GIB) for key, value in sizes.items()}


def test_numpy_s_error_says_how_much_was_asked_for() -> None:
    import numpy as np

    with pytest.raises(MemoryError) as caught:
        np.empty(TOO_MANY)
    assert read_shortage(caught.value).sizes == {"requested_bytes": 8 * TOO_MANY}


class Talks(Exception):
    def __str__(self) -> str:
        raise AssertionError("code of the user's")


def test_an_error_that_was_caused_by_one_on_memory_counts_and_one_raised_meanwhile_does_not() -> None:
    own = torch.OutOfMemoryError
    cause, later = MemoryError(), Talks("CUDA out of memory")
    later.__cause__ = cause
    assert find_memory_error(later, own) is cause
    later.__cause__, later.__context__ = None, cause
    assert find_memory_error(later, own) is None
    exit_code = SystemExit(1)
    exit_code.__context__ = cause
    assert find_memory_error(exit_code, own) is cause
    cause.__cause__ = later.__cause__ = later
    assert find_memory_error(later, own) is None


def test_a_training_that_goes_on_after_an_error_on_memory_did_not_run_out_of_it(tmp_path: Path) -> None:
    def train() -> None:
        with pytest.raises(RuntimeError, match="allocate"):
            torch.empty(TOO_MANY)
        take_steps(*make_training())
        raise ValueError("later")

    assert explain(tmp_path, train) == {}


class Refuses(torch.Tensor):  # type: ignore[misc]
    """A tensor whose attributes fail."""

    @property
    def shape(self) -> Any:
        raise AssertionError("code of the user's")

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise AssertionError("code of the user's")

    @classmethod
    def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("code of the user's")


class Wraps(torch.Tensor):  # type: ignore[misc]
    """A tensor that stands for a larger one, of which it holds a part."""

    held: torch.Tensor

    def __new__(cls, held: torch.Tensor) -> Wraps:
        made: Wraps = torch.Tensor._make_wrapper_subclass(cls, (1 << 40,))
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("code of the user's")


def test_no_code_of_the_users_runs_and_shared_memory_counts_once(tmp_path: Path) -> None:
    def train() -> None:
        refuses = torch.zeros(300).as_subclass(Refuses)
        base = torch.zeros(200)
        views = {"row": base[:10], "whole": base, "none": None}
        wraps = Wraps(torch.zeros(100))
        sparse = torch.zeros(10, 10).to_sparse()
        bare = nn.Module.__new__(nn.Module)
        raise MemoryError(refuses, views, wraps, sparse, bare)

    fact = explain(tmp_path, train)
    found = {each["name"]: (each["bytes"], each["count"]) for each in fact["tensors"]}
    assert found["refuses"] == (1200, 1)
    assert found["wraps"] == (400, 1)
    assert 800 in {size for size, _ in found.values()}
    assert "requested_bytes" not in fact


def test_nothing_is_kept_and_nothing_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The function below still runs when the error is explained, and deletes its tensor after that."""
    inner: list[weakref.ref[Any]] = []

    def fail() -> None:
        large = torch.zeros(1000)
        inner.append(weakref.ref(large))
        raise torch.OutOfMemoryError("CUDA out of memory", large.requires_grad_() * 2)

    def train() -> None:
        own = torch.zeros(1000)
        outer = weakref.ref(own)
        recording = Recording(tmp_path, parse_options({"window": None}), with_sidecar=False)
        recording.resume()
        with Edge(recording.explain):
            fail()
        recording.finish()
        del own, recording
        gc.collect()
        assert outer() is None
        assert inner[0]() is None

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train()
    assert capfd.readouterr() == ("", "")


def test_a_fault_of_ours_is_a_note_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from collector.signals import out_of_memory

    monkeypatch.setattr(out_of_memory, "psutil", SimpleNamespace())
    recording = Recording(tmp_path, parse_options({"window": None}), with_sidecar=False)
    recording.resume()
    recording.explain(MemoryError())
    recording.finish()
    (signal,) = (each for each in Run(tmp_path).rank().manifest.signals if each.name == "out_of_memory")
    assert signal.state == "failed"
    assert "the training went on" in signal.reason
