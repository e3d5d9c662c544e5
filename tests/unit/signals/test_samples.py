"""The samples of a step are those of the batches that it trained on, wherever they were fetched."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest

from tests.support import shapes
from tests.support.recording import record


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
