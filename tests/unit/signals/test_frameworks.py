"""Loops that frameworks run: steps and evaluation are found without a call, where the framework is installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.support import shapes
from tests.support.recording import assert_sound, record

# Frameworks warn of what is their own business.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Texts(Dataset[Any]):  # type: ignore[misc]
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": torch.randint(0, 100, (16,)), "labels": index % 2}


def build_trainer(path: Path, **options: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    arguments = transformers.TrainingArguments(
        output_dir=str(path / "trainer"),
        per_device_train_batch_size=8,
        num_train_epochs=2,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **options,
    )
    model = transformers.BertForSequenceClassification(config)
    return transformers.Trainer(model=model, args=arguments, train_dataset=Texts(80), eval_dataset=Texts(32))


@pytest.mark.parametrize(("micro_batches", "train"), [(1, 20), (2, 10)])
def test_hugging_face_trainer(tmp_path: Path, micro_batches: int, train: int) -> None:
    trainer = build_trainer(tmp_path, gradient_accumulation_steps=micro_batches)
    recorded = record(tmp_path / "run", trainer.train)
    assert_sound(recorded)
    assert recorded.kinds == {"train": train, "eval": 8}
    assert recorded.count("backwards") == [micro_batches] * train
    # The trainer fetches one batch ahead: the first of an epoch belongs to no step.
    assert sum(recorded.count("fetches")) == 20 - 2


def build_lightning_module(manual: bool) -> Any:
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = shapes.Net()
            self.automatic_optimization = not manual

        def training_step(self, batch: Any, index: int) -> Any:
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            if manual:
                optimizer = self.optimizers()
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.net(batch[0])

        def configure_optimizers(self) -> Any:
            return shapes.sgd(self)

    return Module()


@pytest.mark.parametrize(
    ("manual", "options", "train"), [(False, {}, 20), (True, {}, 20), (False, {"accumulate_grad_batches": 2}, 10)]
)
def test_lightning_trainer(tmp_path: Path, manual: bool, options: dict[str, Any], train: int) -> None:
    lightning = pytest.importorskip("lightning")
    module = build_lightning_module(manual)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        num_sanity_val_steps=2,
        enable_checkpointing=False,
        default_root_dir=tmp_path,
        **quiet,
        **options,
    )
    recorded = record(tmp_path / "run", lambda: trainer.fit(module, shapes.loader(), shapes.loader(64)))
    assert_sound(recorded)
    assert recorded.kinds == {"train": train, "eval": 2 + 8}
    assert min(recorded.count("forward_ns")) > 0


def test_accelerate_with_accumulation(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")

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


def train_two_epochs(batches: Callable[[], DataLoader[Any]]) -> Callable[[], None]:
    def loop() -> None:
        model, loader = shapes.Net(), batches()
        optimizer = shapes.sgd(model)
        for _ in range(2):
            shapes.train_on(model, optimizer, loader)

    return loop


@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_loader_is_seen_into_its_workers(tmp_path: Path, workers: int) -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    loop = train_two_epochs(lambda: torchdata.StatefulDataLoader(shapes.samples(), 16, num_workers=workers))
    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    assert recorded.kinds == {"train": 20}
    rank = recorded.run.rank()
    stages = [row for row in rank.table("stages").to_pylist() if row["kind"] == "work" and row["stage"] == "read"]
    fetches = rank.table("fetches").to_pylist()
    assert {(row["epoch"], row["batch"]) for row in stages} == {(row["epoch"], row["batch"]) for row in fetches}
    assert rank.manifest.warnings == ()


def test_waiting_for_nodes_is_waiting_for_data(tmp_path: Path) -> None:
    nodes = pytest.importorskip("torchdata.nodes")

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
