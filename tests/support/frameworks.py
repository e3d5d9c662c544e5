"""Small trainings that frameworks run."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from tests.support import shapes


class Texts(Dataset[Any]):  # type: ignore[misc]
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": torch.randint(0, 100, (16,)), "labels": index % 2}


def build_trainer(path: Path, callbacks: list[Any] | None = None, **options: Any) -> Any:
    """Return a Trainer of Hugging Face: 20 steps in two epochs, each with four batches of evaluation."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64
    )
    fixed: dict[str, Any] = {
        "output_dir": str(path / "trainer"),
        "per_device_train_batch_size": 8,
        "num_train_epochs": 2,
        "eval_strategy": "epoch",
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
    }
    arguments = transformers.TrainingArguments(**{**fixed, **options})
    model = transformers.BertForSequenceClassification(config)
    sets = {"train_dataset": Texts(80), "eval_dataset": Texts(32)}
    return transformers.Trainer(model=model, args=arguments, callbacks=callbacks, **sets)


def build_lightning_module(
    manual: bool = False, package: str = "lightning", act: Callable[[int], None] = lambda index: None
) -> Any:
    """Return a module of a Lightning package. `act` is called in each training step."""

    class Module(import_module(package).LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = shapes.Net()
            self.automatic_optimization = not manual

        def training_step(self, batch: Any, index: int) -> Any:
            act(index)
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            if manual:
                optimizer = self.optimizers()
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.net(batch[0])

        test_step = validation_step

        def configure_optimizers(self) -> Any:
            return shapes.sgd(self)

    return Module()


def build_lightning_trainer(folder: Path, package: str = "lightning", **options: Any) -> Any:
    """Return a quiet Trainer of a Lightning package, of two epochs."""
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    fixed = {"max_epochs": 2, "accelerator": "cpu", "devices": 1, "default_root_dir": folder}
    return import_module(package).Trainer(**{**fixed, **quiet, **options})
