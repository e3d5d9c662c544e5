"""Training loops of every shape, each small enough for a test: what people write, not what a profiler would like."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

BATCH = 16
loss_of = nn.CrossEntropyLoss()


class Net(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)
        return result


class Stream(IterableDataset[Any]):  # type: ignore[misc]
    def __iter__(self) -> Iterator[Any]:
        for _ in range(40):
            yield torch.randn(16), 1


def samples(count: int = 160) -> TensorDataset:
    return TensorDataset(torch.randn(count, 16), torch.randint(0, 4, (count,)))


def loader(count: int = 160, **options: Any) -> DataLoader[Any]:
    return DataLoader(samples(count), BATCH, **options)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def train_on(model: Any, optimizer: torch.optim.Optimizer, batches: Any) -> None:
    for x, y in batches:
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()


def plain() -> None:
    model = Net()
    train_on(model, sgd(model), loader())


def workers_persistent_two_epochs() -> None:
    model = Net()
    optimizer, batches = sgd(model), loader(num_workers=2, persistent_workers=True)
    for _ in range(2):
        train_on(model, optimizer, batches)


def accumulation_with_a_rest() -> None:
    model = Net()
    optimizer = sgd(model)
    for i, (x, y) in enumerate(loader()):
        loss_of(model(x), y).backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def accumulation_by_hand() -> None:
    model = Net()
    optimizer, batches = sgd(model), iter(loader(320))
    for _ in range(5):
        for _ in range(4):
            x, y = next(batches)
            (loss_of(model(x), y) / 4).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def scaler_with_an_infinite_gradient() -> None:
    model = Net()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu")
    for i, (x, y) in enumerate(loader()):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model(x), y)
        if i == 5:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()


class Gan:
    def __init__(self) -> None:
        self.maker, self.judge, self.head = Net(), Net(), nn.Linear(4, 16)
        self.maker_optimizer = torch.optim.Adam(self.maker.parameters())
        self.judge_optimizer = torch.optim.Adam(self.judge.parameters())

    def train(self, x: torch.Tensor) -> None:
        self.judge_optimizer.zero_grad()
        made = self.head(self.maker(torch.randn(BATCH, 16)))
        (self.judge(x).mean() - self.judge(made.detach()).mean()).backward()
        self.judge_optimizer.step()
        self.maker_optimizer.zero_grad()
        self.judge(made).mean().backward()
        self.maker_optimizer.step()


def gan() -> None:
    pair = Gan()
    for x, _ in loader():
        pair.train(x)


def gan_without_loader() -> None:
    pair = Gan()
    for _ in range(10):
        pair.train(torch.randn(BATCH, 16))


def without_loader() -> None:
    model = Net()
    optimizer = sgd(model)
    for _ in range(10):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).sum().backward()
        optimizer.step()


def one_batch_over_and_over() -> None:
    model = Net()
    x, y = next(iter(loader()))
    train_on(model, sgd(model), [(x, y)] * 100)


def validate(model: nn.Module, batches: Any) -> None:
    model.eval()
    with torch.no_grad():
        for x, y in batches:
            loss_of(model(x), y)
    model.train()


def validation_inside_and_after() -> None:
    model = Net()
    optimizer, batches, held_out = sgd(model), loader(), loader(64)
    for _ in range(2):
        for i, (x, y) in enumerate(batches):
            train_on(model, optimizer, [(x, y)])
            if i == 4:
                validate(model, held_out)
        validate(model, held_out)


def validation_that_stops_early() -> None:
    model = Net()
    optimizer, held_out = sgd(model), loader(64)
    for i, (x, y) in enumerate(loader()):
        train_on(model, optimizer, [(x, y)])
        if i == 4:
            with torch.no_grad():
                for j, (u, _) in enumerate(held_out):
                    model(u)
                    if j == 1:
                        break


def inference_before_training() -> None:
    model = Net()
    with torch.inference_mode():
        for x, _ in loader(64):
            model(x)
    train_on(model, sgd(model), loader())


def two_loaders_zipped() -> None:
    model = Net()
    optimizer = sgd(model)
    for (x, y), (u, _) in zip(loader(), loader(), strict=True):
        optimizer.zero_grad()
        (loss_of(model(x), y) + model(u).mean()).backward()
        optimizer.step()


def lbfgs_with_closure() -> None:
    model = Net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    for x, y in loader():

        def closure(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = loss_of(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)


def checkpointed() -> None:
    model = Net()
    optimizer = sgd(model)
    for x, y in loader():
        optimizer.zero_grad()
        x.requires_grad_()
        loss_of(checkpoint(model, x, use_reentrant=False), y).backward()
        optimizer.step()


def optimizer_in_backward() -> None:
    model = Net()
    optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()}

    def update(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(update)
    for x, y in loader():
        loss_of(model(x), y).backward()


def gradient_penalty() -> None:
    model = Net()
    optimizer = sgd(model)
    for x, _ in loader():
        x.requires_grad_()
        out = model(x).sum()
        (gradient,) = torch.autograd.grad(out, x, create_graph=True)
        optimizer.zero_grad()
        (gradient.norm() + out).backward()
        optimizer.step()


def iterable_with_workers() -> None:
    model = Net()
    train_on(model, sgd(model), DataLoader(Stream(), 8, num_workers=2))


def loader_in_another_thread() -> None:
    model = Net()
    optimizer, batches = sgd(model), queue.Queue[Any](2)

    def feed() -> None:
        for batch in loader():
            batches.put(batch)
        batches.put(None)

    thread = threading.Thread(target=feed)
    thread.start()
    while (batch := batches.get()) is not None:
        train_on(model, optimizer, [batch])
    thread.join()


def one_batch_ahead() -> None:
    def ahead(batches: Any) -> Iterator[Any]:
        iterator = iter(batches)
        current = next(iterator)
        for following in iterator:
            yield current
            current = following
        yield current

    model = Net()
    train_on(model, sgd(model), ahead(loader()))


def broken_off_and_failed() -> None:
    model = Net()
    optimizer, batches = sgd(model), loader(num_workers=1)
    for i, batch in enumerate(batches):
        if i == 5:
            break
        train_on(model, optimizer, [batch])
    try:
        for i, (x, y) in enumerate(batches):
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            if i == 3:
                model(torch.randn(3, 3))
            loss.backward()
            optimizer.step()
    except RuntimeError:
        pass
    train_on(model, optimizer, batches)


def in_another_thread() -> None:
    thread = threading.Thread(target=plain)
    thread.start()
    thread.join()


def workers_out_of_order() -> None:
    model = Net()
    train_on(model, sgd(model), loader(num_workers=2, in_order=False))


def compiled_model() -> None:
    model = Net()
    compiled: Any = torch.compile(model, backend="eager")
    optimizer = sgd(model)
    for _ in range(2):
        train_on(compiled, optimizer, loader())
        with torch.no_grad():
            for x, _ in loader(32):
                compiled(x)


def compiled_in_place() -> None:
    model = Net()
    model.compile(backend="eager")
    train_on(model, sgd(model), loader())


def compile_step() -> Callable[[torch.Tensor, torch.Tensor], None]:
    """Return a whole step of a new model as one compiled function."""
    model = Net()
    optimizer = sgd(model)

    @torch.compile(backend="eager")  # type: ignore[untyped-decorator]
    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        loss_of(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step  # type: ignore[no-any-return]


def compiled_step() -> None:
    step = compile_step()
    for x, y in loader():
        step(x, y)


def trained_then_compiled() -> None:
    model = Net()
    optimizer = sgd(model)
    train_on(model, optimizer, loader())
    train_on(torch.compile(model, backend="eager"), optimizer, loader())


def one_batch_a_few_times() -> None:
    model = Net()
    x, y = next(iter(loader()))
    train_on(model, sgd(model), [(x, y)] * 12)


def gan_on_one_batch() -> None:
    pair = Gan()
    x, _ = next(iter(loader()))
    for _ in range(50):
        pair.train(x)


def batches_fetched_before_they_are_used() -> None:
    model = Net()
    optimizer, batches = sgd(model), iter(loader(320))
    for _ in range(5):
        for x, y in [next(batches) for _ in range(4)]:
            (loss_of(model(x), y) / 4).backward()
        optimizer.step()
        optimizer.zero_grad()


def a_step_for_each_batch_of_a_group() -> None:
    model = Net()
    optimizer, batches = sgd(model), iter(loader(320))
    for _ in range(4):
        train_on(model, optimizer, [next(batches) for _ in range(5)])


def groups_to_the_end_of_each_epoch() -> None:
    model = Net()
    optimizer, batches = sgd(model), loader(num_workers=1, persistent_workers=True)
    for _ in range(2):
        iterator = iter(batches)
        while group := list(itertools.islice(iterator, 4)):
            train_on(model, optimizer, group)


def gan_in_groups() -> None:
    pair, batches = Gan(), iter(loader(320))
    for _ in range(5):
        for x, _ in [next(batches) for _ in range(4)]:
            pair.train(x)


def lbfgs_in_groups() -> None:
    model = Net()
    optimizer, batches = torch.optim.LBFGS(model.parameters(), max_iter=3), iter(loader())
    for _ in range(5):
        for x, y in [next(batches), next(batches)]:

            def closure(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
                optimizer.zero_grad()
                loss = loss_of(model(x), y)
                loss.backward()
                return loss

            optimizer.step(closure)


def two_updates_for_each_group() -> None:
    model = Net()
    optimizer, batches = sgd(model), iter(loader(320))
    for _ in range(5):
        for index, (x, y) in enumerate([next(batches) for _ in range(4)]):
            loss_of(model(x), y).backward()
            if index % 2:
                optimizer.step()
                optimizer.zero_grad()


def several_updates_on_each_batch() -> None:
    model = Net()
    optimizer = sgd(model)
    for x, y in loader():
        train_on(model, optimizer, [(x, y)] * 3)


def batches_that_are_skipped() -> None:
    model = Net()
    optimizer = sgd(model)
    for index, batch in enumerate(loader(320)):
        if index % 4 == 3:
            train_on(model, optimizer, [batch])


def loader_read_before_training() -> None:
    model, batches = Net(), loader()
    for _ in batches:
        pass
    train_on(model, sgd(model), batches)


def without_loader_with_validation() -> None:
    model = Net()
    optimizer = sgd(model)
    for step in range(10):
        optimizer.zero_grad()
        model(torch.randn(8, 16)).sum().backward()
        optimizer.step()
        if step % 5 == 4:
            with torch.no_grad():
                for _ in range(3):
                    model(torch.randn(8, 16))


def without_loader_with_a_teacher() -> None:
    model, teacher = Net(), Net()
    optimizer = sgd(model)
    for _ in range(10):
        x = torch.randn(8, 16)
        with torch.no_grad():
            wanted = teacher(x)
        optimizer.zero_grad()
        (model(x) - wanted).square().mean().backward()
        optimizer.step()


def compiled_step_for_long() -> None:
    step = compile_step()
    for _ in range(3):
        for x, y in loader(30 * BATCH):
            step(x, y)


class Critic(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x)
        return result


def another_model_comes_late() -> None:
    model, critic = Net(), Critic()
    train_on(model, sgd(model), loader())
    with torch.no_grad():
        for x, _ in loader(30 * BATCH):
            critic(x)
