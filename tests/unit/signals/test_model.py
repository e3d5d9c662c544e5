"""What modules of the first steps say of the model: how it is spread, and which gradients nothing uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from collector.context.signals import SETTLED_STEP
from collector.signals.communication import TRIALS, ReadingPace
from collector.signals.model import find_unused
from profiler_server.analysis.ranks.ranks import read_ddp
from tests.support import shapes
from tests.support.recording import record

BACKWARD_NS = 100_000_000


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("reduces_every", [1, 4])
def test_settings_of_ddp_are_noted(tmp_path: Path, reduces_every: int) -> None:
    def loop() -> None:
        model = DistributedDataParallel(shapes.Net(), find_unused_parameters=True)
        optimizer = shapes.sgd(model)
        for at, (x, y) in enumerate(shapes.loader(320)):
            with nullcontext() if at % reduces_every == reduces_every - 1 else model.no_sync():
                shapes.loss_of(model(x), y).backward()
            if at % reduces_every == reduces_every - 1:
                optimizer.step()
                optimizer.zero_grad()

    ddp = read_ddp(record(tmp_path / "run", loop).run.rank().manifest.facts)
    assert ddp is not None
    assert (ddp.backend, ddp.device_type, ddp.finds_unused, ddp.shares_buckets) == ("gloo", "cpu", True, False)
    assert ddp.unused_bytes == 0
    assert ddp.parameter_bytes == 4 * sum(parameter.numel() for parameter in shapes.Net().parameters())
    assert sum(ddp.bucket_bytes) == ddp.parameter_bytes
    if reduces_every == 1:
        assert ddp.backwards == ddp.synced_backwards > 0
    else:  # the first backwards come before the module is known
        assert 0 < ddp.synced_backwards < 0.5 * ddp.backwards
        assert not ddp.syncs_all


@pytest.mark.parametrize("wrap", [nn.DataParallel, nn.Sequential])
def test_data_parallel_is_noted_with_its_devices_and_a_plain_model_is_not(tmp_path: Path, wrap: type) -> None:
    def loop() -> None:
        model = wrap(shapes.Net())
        shapes.train_on(model, shapes.sgd(model), shapes.loader(48))

    facts = record(tmp_path, loop).run.rank().manifest.facts
    expected = {"data_parallel": torch.cuda.device_count()} if wrap is nn.DataParallel else {}
    assert {name: facts[name] for name in ("ddp", "data_parallel") if name in facts} == expected


@pytest.mark.parametrize("noted", [None, 7, [], {"bucket_bytes": 3}, {"bucket_bytes": ["x", True], "backwards": -1}])
def test_damaged_facts_are_no_settings(noted: object) -> None:
    ddp = read_ddp({"ddp": noted})
    assert ddp is None or (ddp.bucket_bytes, ddp.backwards, ddp.syncs_all) == ((), 0, False)


def test_a_reading_that_was_interrupted_does_not_end_the_readings() -> None:
    pace = ReadingPace()
    pace.note(50_000_000)
    assert pace.choose_every(BACKWARD_NS) == 1
    for _ in range(TRIALS - 1):
        pace.note(90_000)
    assert pace.choose_every(BACKWARD_NS) == 1


def test_dear_readings_become_rare() -> None:
    pace = ReadingPace()
    for _ in range(TRIALS):
        pace.note(90_000)
    assert pace.choose_every(1_000_000) == 64


def give_gradients(*models: nn.Module) -> list[nn.Parameter]:
    parameters = [parameter for model in models for parameter in model.parameters()]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    return parameters


def test_gradients_that_no_optimizer_takes_are_counted() -> None:
    student, teacher = nn.Linear(4, 2), nn.Linear(8, 2)
    parameters = give_gradients(student, teacher)
    found = find_unused(parameters, [torch.optim.SGD(student.parameters(), 0.1)])
    assert found == {"parameters": 18, "tensors": 2, "updated": 10}


def test_what_is_frozen_or_has_no_gradient_is_not_counted() -> None:
    student, frozen, idle = nn.Linear(4, 2), nn.Linear(8, 2).requires_grad_(False), nn.Linear(8, 2)
    parameters = [*give_gradients(student), *frozen.parameters(), *idle.parameters()]
    assert find_unused(parameters, [torch.optim.SGD(student.parameters(), 0.1)]) is None


def test_several_optimizers_take_the_gradients_of_all_that_they_hold() -> None:
    forger, critic = nn.Linear(4, 2), nn.Linear(8, 2)
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in (forger, critic)]
    assert find_unused(give_gradients(forger, critic), optimizers) is None


@pytest.mark.parametrize("kept", [0, 1])
def test_copies_in_the_optimizer_say_nothing_of_the_model(kept: int) -> None:
    """Mixed precision with copies of the weights in float32, of all or of all but some."""
    model, norm = nn.Linear(4, 2).half(), nn.LayerNorm(2)
    copies = [parameter.detach().float() for parameter in model.parameters()]
    optimizer = torch.optim.SGD([*copies, *(norm.parameters() if kept else ())], 0.1)
    assert find_unused(give_gradients(model, norm) if kept else give_gradients(model), [optimizer]) is None


@pytest.mark.parametrize("without", [False, True])
def test_a_teacher_that_records_gradients_is_noted(without: bool, tmp_path: Path) -> None:
    def train() -> None:
        teacher, student = nn.Linear(8, 4), nn.Linear(8, 4)
        optimizer = torch.optim.SGD(student.parameters(), 0.1)
        for _ in range(SETTLED_STEP + 3):
            batch = torch.randn(4, 8)
            with torch.set_grad_enabled(not without):
                target = teacher(batch)
            loss = nn.functional.mse_loss(student(batch), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    recorded = record(tmp_path, train)
    found = recorded.run.rank(0).manifest.facts.get("unused_gradients")
    assert found == (None if without else {"parameters": 36, "tensors": 2, "updated": 36})
