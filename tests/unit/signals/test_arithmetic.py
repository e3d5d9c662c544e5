"""What the probe finds out about arithmetic is true of the model's numbers, and leaves them and the processor as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from collector.signals import environment as arithmetic
from collector.signals.environment import CHUNK, MOST_CHUNKS, count_subnormals, measure_products, measure_subnormals
from tests.support.recording import record

TINY = 1e-40


def flushes() -> bool:
    """Say whether this thread flushes subnormal numbers to zero."""
    return float(torch.tensor([TINY]).mul(0.5)[0]) == 0.0


def test_subnormal_numbers_are_counted_by_their_bits() -> None:
    numbers = torch.tensor([0.0, -0.0, 1.0, TINY, -TINY, 1.18e-38, torch.inf, torch.nan, 1e-45])
    assert count_subnormals(numbers) == 3


@pytest.mark.parametrize("sizes", [[10], [CHUNK + 1, 5], [CHUNK * 30, 7, CHUNK]])
def test_at_most_so_many_numbers_are_looked_at(sizes: list[int]) -> None:
    found = measure_subnormals([torch.ones(size) for size in sizes])
    assert 0 < found["count"] <= min(sum(sizes), MOST_CHUNKS * CHUNK)
    assert (found["subnormal"], found["plain_ns"]) == (0, 0)


def test_flushing_is_tried_without_changing_this_thread() -> None:
    before, numbers = flushes(), torch.full((CHUNK,), TINY)
    found = measure_subnormals([numbers])
    assert (found["count"], found["subnormal"]) == (CHUNK, CHUNK)
    assert found["plain_ns"] > 0
    assert found["flushed_ns"] > 0
    assert flushes() is before
    assert count_subnormals(numbers) == CHUNK


def test_products_are_timed_only_where_the_processor_has_instructions_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [torch.ones(8, 4), torch.ones(8)]
    monkeypatch.setattr(arithmetic, "find_bfloat16", lambda: "")
    assert measure_products(weights) is None
    monkeypatch.setattr(arithmetic, "find_bfloat16", lambda: "AMX")
    found = measure_products(weights)
    assert found is not None
    assert (found["shapes"], found["linear_frac"]) == ([[8, 4]], 0.8)
    assert found["float32_ns"] > 0
    assert measure_products([torch.ones(8)]) is None


def test_a_run_tells_of_parameters_gradients_and_states(tmp_path: Path) -> None:
    model = nn.Linear(32, 32)

    def train() -> None:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
        for _ in range(40):
            optimizer.zero_grad()
            (model(torch.ones(4, 32)) * TINY).sum().backward()
            optimizer.step()

    found: dict[str, Any] = record(tmp_path, train, probe=True).run.rank().manifest.facts["subnormals"]
    assert {name: entry["count"] for name, entry in found.items()} == {
        "parameters": 32 * 33,
        "gradients": 32 * 33,
        "states": 2 * 32 * 33 + 2,  # and a counter of steps for each parameter
    }
    assert found["parameters"]["subnormal"] == 0
    assert found["gradients"]["subnormal"] > 0


def test_without_the_probe_nothing_is_looked_at(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)

    def train() -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(40):
            model(torch.ones(4, 4)).sum().backward()
            optimizer.step()

    manifest = record(tmp_path, train).run.rank().manifest
    assert not {"subnormals", "bfloat16", "probe"} & {*manifest.facts, *(signal.name for signal in manifest.signals)}
