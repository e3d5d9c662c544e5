"""Loops that frameworks run: steps and evaluation are found without a call."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tests.support import shapes
from tests.support.frameworks import build_lightning_module, build_lightning_trainer, build_trainer
from tests.support.recording import assert_sound, record

# Frameworks warn of what is their own business.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(("micro_batches", "train"), [(1, 20), (2, 10)])
def test_hugging_face_trainer(tmp_path: Path, micro_batches: int, train: int) -> None:
    trainer = build_trainer(tmp_path, gradient_accumulation_steps=micro_batches)
    recorded = record(tmp_path / "run", trainer.train)
    assert_sound(recorded)
    assert recorded.kinds == {"train": train, "eval": 8}
    assert recorded.count("backwards") == [micro_batches] * train
    # The trainer fetches one batch ahead: the first fetch of an epoch lies before its steps, its samples in the first.
    assert sum(recorded.count("fetches")) == 20 - 2
    assert recorded.count("samples") == [8 * micro_batches] * train
    assert [row["samples"] for row in recorded.rows if row["kind"] == "eval"] == [8] * 8


@pytest.mark.parametrize(
    ("manual", "options", "train"), [(False, {}, 20), (True, {}, 20), (False, {"accumulate_grad_batches": 2}, 10)]
)
def test_lightning_trainer(tmp_path: Path, manual: bool, options: dict[str, Any], train: int) -> None:
    module = build_lightning_module(manual)
    trainer = build_lightning_trainer(tmp_path, enable_checkpointing=False, **options)
    recorded = record(tmp_path / "run", lambda: trainer.fit(module, shapes.loader(), shapes.loader(64)))
    assert_sound(recorded)
    assert recorded.kinds == {"train": train, "eval": 2 + 8}
    assert min(recorded.count("forward_ns")) > 0


def test_accelerate_with_accumulation(tmp_path: Path) -> None:
    import accelerate

    def loop() -> None:
        accelerator = accelerate.Accelerator(gradient_accumulation_steps=2, cpu=True)
        model = shapes.Net()
        model, optimizer, batches = accelerator.prepare(model, shapes.sgd(model), shapes.loader())
        for _ in range(2):
            for x, y in batches:
                with accelerator.accumulate(model):
                    accelerator.backward(shapes.loss_of(model(x), y))
                    optimizer.step()
                    optimizer.zero_grad()

    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    assert recorded.kinds == {"train": 10}
    assert recorded.count("backwards") == [2] * 10
    assert recorded.count("samples") == [32] * 10


def train_two_epochs(batches: Callable[[], DataLoader[Any]]) -> Callable[[], None]:
    def loop() -> None:
        model, loader = shapes.Net(), batches()
        optimizer = shapes.sgd(model)
        for _ in range(2):
            shapes.train_on(model, optimizer, loader)

    return loop


@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_loader_is_seen_into_its_workers(tmp_path: Path, workers: int) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    loop = train_two_epochs(lambda: StatefulDataLoader(shapes.samples(), 16, num_workers=workers))
    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    assert recorded.kinds == {"train": 20}
    rank = recorded.run.rank()
    stages = [row for row in rank.table("stages").to_pylist() if row["kind"] == "work" and row["stage"] == "read"]
    fetches = rank.table("fetches").to_pylist()
    assert {(row["epoch"], row["batch"]) for row in stages} == {(row["epoch"], row["batch"]) for row in fetches}
    assert rank.manifest.warnings == ()


def test_waiting_for_nodes_is_waiting_for_data(tmp_path: Path) -> None:
    from torchdata import nodes

    def build() -> Any:
        samples = shapes.samples()
        node = nodes.SamplerWrapper(torch.utils.data.SequentialSampler(samples))
        node = nodes.Batcher(nodes.Mapper(node, samples.__getitem__), 16)
        return nodes.Loader(nodes.Mapper(node, torch.utils.data.default_collate))

    recorded = record(tmp_path, train_two_epochs(build))
    assert_sound(recorded)
    assert recorded.kinds == {"train": 20}
    assert min(recorded.count("data_wait_ns")) > 0
    assert recorded.count("samples") == [16] * 20
    assert recorded.count("epoch") == [1] * 10 + [2] * 10


def test_nodes_that_work_ahead_in_threads_are_waited_for(tmp_path: Path) -> None:
    from torchdata import nodes

    def build() -> Any:
        samples = shapes.samples()
        node = nodes.SamplerWrapper(torch.utils.data.SequentialSampler(samples))
        node = nodes.ParallelMapper(node, samples.__getitem__, num_workers=2, method="thread")
        node = nodes.Mapper(nodes.Batcher(node, 16), torch.utils.data.default_collate)
        return nodes.Loader(nodes.Prefetcher(node, prefetch_factor=2))

    recorded = record(tmp_path, train_two_epochs(build))
    assert_sound(recorded)
    assert recorded.kinds == {"train": 20}
    assert min(recorded.count("data_wait_ns")) > 0
    (loader,) = recorded.run.rank().manifest.loaders
    assert loader.watched  # no arguments of a DataLoader are advised


def test_a_stateful_loader_goes_on_where_it_was(tmp_path: Path) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    def loop() -> None:
        model, loader = shapes.Net(), StatefulDataLoader(shapes.samples(), 16)
        optimizer = shapes.sgd(model)
        shapes.train_on(model, optimizer, itertools.islice(loader, 4))
        resumed = StatefulDataLoader(shapes.samples(), 16)
        resumed.load_state_dict({**loader.state_dict()})
        shapes.train_on(model, optimizer, resumed)

    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    assert recorded.kinds == {"train": 10}


def write_shard(path: Path, count: int) -> str:
    import webdataset

    with webdataset.TarWriter(str(path)) as shard:
        for number in range(count):
            tensor = torch.full((16,), float(number))
            shard.write({"__key__": f"{number:04}", "x.pth": tensor, "y.cls": number % 4})
    return str(path)


@pytest.mark.parametrize("workers", [0, 1])
def test_web_loader_is_seen_into_its_workers(tmp_path: Path, workers: int) -> None:
    import webdataset

    shard = write_shard(tmp_path / "shard-0.tar", 64)

    def build() -> Any:
        samples = webdataset.WebDataset(shard, shardshuffle=False).decode().to_tuple("x.pth", "y.cls")
        return webdataset.WebLoader(samples.batched(16), batch_size=None, num_workers=workers)

    recorded = record(tmp_path / "run", train_two_epochs(build))
    assert_sound(recorded)
    assert recorded.kinds == {"train": 8}
    assert min(recorded.count("data_wait_ns")) > 0
    stages = recorded.run.rank().table("stages").to_pylist()
    assert {row["replica"] for row in stages if row["stage"] == "read"} == ({0} if workers else {-1})


def test_samples_of_a_web_loader_that_batches_again_are_those_that_were_trained_on(tmp_path: Path) -> None:
    import webdataset

    shard = write_shard(tmp_path / "shard-0.tar", 64)

    def build() -> Any:
        samples = webdataset.WebDataset(shard, shardshuffle=False).decode().to_tuple("x.pth", "y.cls")
        loader = webdataset.WebLoader(samples.batched(8), batch_size=None)
        return loader.unbatched().shuffle(20, initial=20).batched(8)

    recorded = record(tmp_path / "run", train_two_epochs(build))
    assert_sound(recorded)
    assert recorded.kinds == {"train": 16}
    assert sum(samples or 0 for samples in recorded.count("samples")) == 128


@pytest.mark.parametrize("workers", [0, 2])
def test_hugging_face_datasets_are_read_and_transformed(tmp_path: Path, workers: int) -> None:
    import datasets

    rows = {"x": torch.randn(160, 16).tolist(), "y": [number % 4 for number in range(160)]}
    samples = datasets.Dataset.from_dict(rows).with_format("torch")

    def loop() -> None:
        model, loader = shapes.Net(), DataLoader(samples, 16, num_workers=workers)
        shapes.train_on(model, shapes.sgd(model), ((batch["x"], batch["y"]) for batch in loader))

    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    assert recorded.kinds == {"train": 10}
    assert recorded.count("samples") == [16] * 10
    stages = {row["stage"] for row in recorded.run.rank().table("stages").to_pylist()}
    assert {"read", "collate"} <= stages
