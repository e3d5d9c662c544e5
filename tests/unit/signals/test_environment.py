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


def test_what_the_script_sets_counts_although_it_is_off_again_at_the_end(tmp_path: Path) -> None:
    wanted = torch.get_num_threads() + 3

    def loop() -> None:
        torch.set_num_threads(wanted)
        for is_on in (True, False):
            torch.autograd.set_detect_anomaly(is_on)
            shapes.plain()

    run = record(tmp_path, loop).run
    gc.collect()  # reading the settings leaves nothing behind
    manifest = run.rank().manifest
    assert manifest.torch_threads == wanted
    assert manifest.facts["anomaly_mode"] is True
    assert manifest.facts["deterministic"] is False
    assert manifest.facts["flash_sdp"] is torch.backends.cuda.flash_sdp_enabled()
    assert manifest.facts["matmul_precision"] == torch.get_float32_matmul_precision()


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
