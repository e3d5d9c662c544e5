"""An error of the user's shows the user's frames and torch's, exactly as without a recording."""

from __future__ import annotations

import gc
import io
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

import collector
from tests.support.recording import record
from tests.support.shapes import Net, loader, loss_of, plain, sgd

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="a bare raise brings the frames back")


class Broken(Exception):
    """One that nobody may change, as a frozen dataclass is."""

    def __setattr__(self, name: str, value: object) -> None:
        raise TypeError("this error is frozen")


def fail() -> Any:
    try:
        raise KeyError("missing")
    except KeyError as cause:
        error = Broken("the user's")
        vars(error)["__notes__"] = ["see the manual"]
        raise error from cause


class Items(Dataset[Any]):  # type: ignore[misc]
    def __init__(self, last: int) -> None:
        self.last = last
        self.transform: Callable[[int], Any] = self.turn

    def __len__(self) -> int:
        return 16

    def turn(self, index: int) -> Any:
        return torch.zeros(16) if index < self.last else fail()

    def __getitem__(self, index: int) -> Any:
        return self.transform(index), 1


class AtOnce(Items):
    def __getitems__(self, indices: list[int]) -> Any:
        return [self[index] for index in indices]


class Stream(IterableDataset[Any]):  # type: ignore[misc]
    def __iter__(self) -> Iterator[Any]:
        yield torch.zeros(16), 1
        fail()


class StreamThatNeverBegins(IterableDataset[Any]):  # type: ignore[misc]
    def __iter__(self) -> Iterator[Any]:
        fail()
        yield 1


def draw() -> Iterator[list[int]]:
    yield from [[0, 1]] * 4
    fail()


class Sampler:
    def __iter__(self) -> Iterator[list[int]]:
        fail()
        return draw()


def collate(samples: Any) -> Any:
    return fail()


class Double(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        fail()


class Fragile(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fail()
        return x


class Step(torch.optim.SGD):  # type: ignore[misc]
    def step(self, closure: Any = None) -> Any:
        fail()


class Unpicklable:
    def __reduce__(self) -> Any:
        fail()


def fetch(data: Any, **options: Any) -> Callable[[], object]:
    def take() -> None:
        each = {} if "batch_sampler" in options else {"batch_size": 2}
        batches = iter(DataLoader(data, **each, **options))
        try:
            list(batches)
        finally:
            if options.get("num_workers"):
                batches._shutdown_workers()  # left to the collector of garbage it takes torch five seconds

    return take


def take_gradient() -> None:
    x = torch.ones(2, requires_grad=True)
    torch.autograd.grad(Double.apply(x).sum(), [x])


def raise_in_gradient_hook() -> None:
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda gradient: fail())
    (x * 2).sum().backward()


def raise_in_module_hook(kind: str) -> None:
    model = Net()
    getattr(model, f"register_{kind}")(lambda *given: fail())
    next(iter(loader()))
    loss_of(model(torch.randn(4, 16)), torch.zeros(4, dtype=torch.long)).backward()


def raise_in_the_same_class_inside() -> None:
    nn.Sequential(nn.Sequential(Fragile()))(torch.zeros(1, 16))


def raise_in_closure() -> None:
    torch.optim.LBFGS(Net().parameters()).step(fail)


def raise_in_optimizer_hook() -> None:
    optimizer = sgd(Net())
    optimizer.register_step_pre_hook(lambda *given: fail())
    optimizer.step()


def raise_on_a_thread() -> None:
    told: list[BaseException] = []

    def work() -> None:
        try:
            list(DataLoader(Items(4), 2))
        except Broken as error:
            told.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    raise told[0]


def raise_in_a_generator() -> None:
    list(collector.watch(draw()))


def raise_in_a_wait() -> None:
    with collector.stage("decode") as stage, stage.wait_input():
        fail()


@collector.record("part")
def raise_in_a_range() -> None:
    fail()


WAYS: dict[str, Callable[[], object]] = {
    "the first sample": fetch(Items(0)),
    "a later sample": fetch(Items(9)),
    "a sample in a worker": fetch(Items(9), num_workers=1),
    "the first sample in a worker": fetch(Items(0), num_workers=1, persistent_workers=True),
    "samples at once": fetch(AtOnce(0)),
    "samples at once in a worker": fetch(AtOnce(0), num_workers=1),
    "a stream": fetch(Stream()),
    "a stream in a worker": fetch(Stream(), num_workers=1),
    "the start of a stream": fetch(StreamThatNeverBegins()),
    "the start of a stream in a worker": fetch(StreamThatNeverBegins(), num_workers=1),
    "collate": fetch(Items(16), collate_fn=collate),
    "collate in a worker": fetch(Items(16), collate_fn=collate, num_workers=1),
    "a batch sampler": lambda: fetch(Items(16), batch_sampler=draw())(),
    "a batch sampler with workers": lambda: fetch(Items(16), batch_sampler=draw(), num_workers=1)(),
    "the start of a batch sampler": fetch(Items(16), batch_sampler=Sampler()),
    "the start of a batch sampler with workers": fetch(Items(16), batch_sampler=Sampler(), num_workers=1),
    "the start of a worker": fetch(Items(16), num_workers=1, worker_init_fn=lambda worker: fail()),
    "an autograd function": lambda: Double.apply(torch.ones(2, requires_grad=True)).sum().backward(),
    "autograd.grad": take_gradient,
    "a hook of a gradient": raise_in_gradient_hook,
    "a second backward": lambda: [loss.backward() for loss in [Net()(torch.ones(1, 16)).sum()] * 2],
    "forward": lambda: Fragile()(torch.ones(1, 16)),
    "a module in one of its class": raise_in_the_same_class_inside,
    "a forward hook": lambda: raise_in_module_hook("forward_hook"),
    "a forward pre-hook": lambda: raise_in_module_hook("forward_pre_hook"),
    "a backward hook": lambda: raise_in_module_hook("full_backward_hook"),
    "optimizer.step": lambda: Step(Net().parameters(), lr=0.1).step(),
    "a hook of an optimizer": raise_in_optimizer_hook,
    "a closure": raise_in_closure,
    "torch.save": lambda: torch.save(Unpicklable(), io.BytesIO()),
    "a thread of the user's": raise_on_a_thread,
    "a watched generator": raise_in_a_generator,
    "a recorded range": raise_in_a_range,
    "a wait of a stage": raise_in_a_wait,
    "an empty queue": lambda: collector.queue("q", queue.Queue()).get_nowait(),
}


OWN = ("a watched generator", "a recorded range", "an empty queue")
"""Calls of ours: without a recording there is nothing to compare them with."""


def tell(way: Callable[[], object]) -> str:
    try:
        way()
    except BaseException:  # noqa: BLE001  whatever it is, it is compared
        return traceback.format_exc()
    return "nothing was raised"


@pytest.mark.filterwarnings("ignore")
def test_a_traceback_is_the_same_with_and_without_a_recording(tmp_path: Path) -> None:
    without = {name: tell(way) for name, way in WAYS.items() if name not in OWN}
    within: dict[str, str] = {}

    def loop() -> None:
        within.update({f"{name}, at first": tell(way) for name, way in WAYS.items() if "worker" not in name})
        nn.Sequential(Net())(torch.zeros(1, 16))
        plain()  # from here on it is known which classes are called outermost
        within.update({name: tell(way) for name, way in WAYS.items()})

    record(tmp_path, loop)
    gc.collect()  # torch fails in the __del__ of an iterator that was never made whole
    ours = {name: text for name, text in within.items() if "/collector/" in text}
    assert not ours, next(iter(ours.items()))
    for name, text in without.items():
        assert within[name] == text, name
        assert ("the user's" in text and "see the manual" in text) or "a second backward" in name
