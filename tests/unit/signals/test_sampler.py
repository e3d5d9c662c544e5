"""The sampler's time is added up, and the sampler gives what it gives."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Sampler
from torch.utils.data import dataloader as module

from collector.signals.workers import SamplerSums, TimedSampler
from tests.support import shapes
from tests.support.recording import record

SLOW_S = 0.002


class Slow(Sampler[int]):  # type: ignore[misc]
    """Takes its time for the first sample of each batch of eight."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        for index in range(self.count):
            if index % 8 == 0:
                time.sleep(SLOW_S)
            yield index


class Broken(Sampler[int]):  # type: ignore[misc]
    def __iter__(self) -> Iterator[int]:
        yield from range(8)
        raise LookupError("no more")


def train(batches: Any, epochs: int = 1) -> None:
    model = shapes.Net()
    optimizer = shapes.sgd(model)
    for _ in range(epochs):
        shapes.train_on(model, optimizer, batches)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_time_of_a_slow_sampler_is_noted(workers: int, tmp_path: Path) -> None:
    data = shapes.samples(80)
    loader = DataLoader(data, 8, sampler=Slow(80), num_workers=workers, persistent_workers=bool(workers))
    facts = record(tmp_path, lambda: train(loader, 2)).run.rank().manifest.facts
    (noted,) = facts["samplers"]
    assert (noted["loader"], noted["kind"], noted["epochs"], noted["batches"]) == (0, "Slow", 2, 18)
    assert noted["rest_ns"] >= 18 * SLOW_S * 1e9
    assert noted["first_ns"] >= 2 * SLOW_S * 1e9


def test_an_error_of_a_sampler_shows_no_frame_of_ours(tmp_path: Path) -> None:
    def loop() -> None:
        train(DataLoader(shapes.samples(64), 8, sampler=Broken()))

    with pytest.raises(LookupError) as caught:
        record(tmp_path, loop)
    assert not any("collector/signals/workers" in str(entry.path) for entry in caught.traceback)


def test_what_a_sampler_chooses_is_unchanged_and_iterators_are_as_before(tmp_path: Path) -> None:
    before = vars(module._BaseDataLoaderIter)["_reset"], vars(module._BaseDataLoaderIter)["__init__"]
    seen: list[float] = []
    data = torch.arange(32.0)
    record(tmp_path, lambda: seen.extend(float(v) for b in DataLoader(data, 8, sampler=Slow(32)) for v in b))
    assert seen == list(range(32))
    assert (vars(module._BaseDataLoaderIter)["_reset"], vars(module._BaseDataLoaderIter)["__init__"]) == before
    assert type(iter(DataLoader(shapes.samples(), 8))._sampler_iter) is not TimedSampler


def test_an_iterable_dataset_has_no_sampler_to_time(tmp_path: Path) -> None:
    from tests.support.shapes.fetching import iterable_with_workers

    facts = record(tmp_path, iterable_with_workers).run.rank().manifest.facts
    assert "samplers" not in facts


def test_a_long_epoch_is_timed_in_part() -> None:
    sums = SamplerSums("x")
    assert list(TimedSampler(iter(range(64 + 70)), sums)) == list(range(64 + 70))
    assert (sums.epochs, sums.batches) == (1, 63 + 10)


def test_the_end_of_an_epoch_is_no_batch() -> None:
    sums = SamplerSums("x")
    assert list(TimedSampler(iter([[1], [2], [3]]), sums)) == [[1], [2], [3]]
    assert (sums.epochs, sums.batches) == (1, 2)


def _read_ahead(batches: Any, depth: int) -> Iterator[Any]:
    ready: deque[Any] = deque()
    for batch in batches:
        ready.append(batch)
        if len(ready) > depth:
            yield ready.popleft()
    yield from ready


def _train(make_batches: Callable[[Any], Any]) -> Callable[[], None]:
    """Train twice on what is made of a loader of 9 batches of 16 and one of 6."""

    def loop() -> None:
        model, loader = shapes.Net(), shapes.loader(150)
        optimizer = shapes.sgd(model)
        for _ in range(2):
            shapes.train_on(model, optimizer, make_batches(loader))

    return loop


@pytest.mark.parametrize("depth", [1, 3])
def test_batches_that_are_fetched_ahead_count_in_the_steps_that_use_them(tmp_path: Path, depth: int) -> None:
    recorded = record(tmp_path, _train(lambda loader: _read_ahead(loader, depth)))
    assert sorted(recorded.count("samples")) == [6] * 2 + [16] * 18
    if depth == 1:
        assert recorded.count("samples") == [*[16] * 9, 6] * 2
    others = [row for row in recorded.rows if row["kind"] != "train"]
    assert sum(row["fetches"] for row in others) == 2 * depth
    assert {row["samples"] for row in others} == {None}


def test_a_batch_that_is_fetched_ahead_of_the_next_epoch_counts_there(tmp_path: Path) -> None:
    recorded = record(tmp_path, _train(lambda loader: _read_ahead(chain(loader, loader), 1)))
    assert recorded.count("samples") == [*[16] * 9, 6] * 4


def test_a_batch_that_is_never_trained_on_counts_in_no_step(tmp_path: Path) -> None:
    recorded = record(tmp_path, _train(lambda loader: islice(_read_ahead(loader, 1), 4)))
    assert recorded.count("samples") == [16] * 8
    recorded = record(tmp_path / "skipped", _train(lambda loader: islice(loader, 3, None)))
    assert sum(recorded.count("samples")) == 2 * (6 * 16 + 6)
