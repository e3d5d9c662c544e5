"""Settings of torch that a script changes after torch was imported, and how the advice hears of them."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from collector.signals.environment import count_memory_nodes
from tests.support import shapes
from tests.support.recording import record


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    threads, anomaly = torch.get_num_threads(), torch.is_anomaly_enabled()
    yield
    torch.set_num_threads(threads)
    torch.autograd.set_detect_anomaly(anomaly)
    torch.use_deterministic_algorithms(False)


def train(before: object = None) -> None:
    model = shapes.Net()
    shapes.train_on(model, shapes.sgd(model), shapes.loader())


def test_threads_that_are_set_in_the_script_count(tmp_path: Path) -> None:
    wanted = torch.get_num_threads() + 3

    def loop() -> None:
        torch.set_num_threads(wanted)
        train()

    assert record(tmp_path, loop).run.rank().manifest.torch_threads == wanted


def test_anomaly_detection_counts_although_it_is_off_again_at_the_end(tmp_path: Path) -> None:
    def loop() -> None:
        torch.autograd.set_detect_anomaly(True)
        train()
        torch.autograd.set_detect_anomaly(False)
        train()

    facts = record(tmp_path, loop).run.rank().manifest.facts
    assert facts["anomaly_mode"] is True
    assert facts["deterministic"] is False


def test_the_dtypes_of_the_parameters_are_counted(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8).double(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loop() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            model[0](torch.randn(2, 4, dtype=torch.float64)).sum().backward()
            optimizer.step()

    facts = record(tmp_path, loop).run.rank().manifest.facts
    assert facts["optimizers"][0]["dtypes"] == {"float64": 40, "float32": 18}


@pytest.mark.parametrize(("lists", "nodes"), [(["0-511"], 1), (["0-3,4-255", "256-511"], 1), ([], None), (["x"], None)])
def test_memory_nodes_are_those_of_the_own_processors(lists: list[str], nodes: int | None, tmp_path: Path) -> None:
    for number, text in enumerate(lists):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(f"{text}\n")
    assert count_memory_nodes(tmp_path) == nodes


def test_reading_the_settings_leaves_nothing_behind(tmp_path: Path) -> None:
    run = record(tmp_path, train).run
    gc.collect()
    assert run.rank().manifest.facts["matmul_precision"] == torch.get_float32_matmul_precision()
