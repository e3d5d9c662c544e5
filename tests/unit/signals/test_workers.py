"""What workers record joins what the training thread records, one to one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tests.support.datasets import Numbers, Samples, Uneven
from tests.support.recording import record

KEY = ["loader", "epoch", "batch"]


def train(loader: Any, epochs: int = 2) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(epochs):
        for batch in loader:
            model(batch.float()).sum().backward()
            optimizer.step()
            optimizer.zero_grad()


def classify(loader: Any, epochs: int) -> None:
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(epochs):
        for points, classes in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(points), classes).backward()
            optimizer.step()


@pytest.mark.parametrize(
    "make",
    [
        lambda: DataLoader(Samples(), 4),
        lambda: DataLoader(Samples(), 4, num_workers=2),
        lambda: DataLoader(Samples(), 4, num_workers=2, persistent_workers=True),
        lambda: DataLoader(Samples(slow_index=9), 4, num_workers=2, in_order=False),
        lambda: DataLoader(Samples(slow_index=9), 4, num_workers=2, in_order=False, persistent_workers=True),
        lambda: DataLoader(Uneven(), 4, num_workers=2),
        lambda: DataLoader(Uneven(), 4, num_workers=2, persistent_workers=True),
    ],
    ids=["none", "two", "persistent", "unordered", "unordered persistent", "iterable", "iterable persistent"],
)
def test_every_fetch_has_its_batch_in_the_workers(tmp_path: Path, make: Callable[[], Any]) -> None:
    recorded = record(tmp_path, lambda: train(make()))
    fetches = recorded.run.frame("fetches")
    made = recorded.run.frame("stages").query("stage == 'collate'")
    assert len(fetches) == len(recorded.train)
    assert sorted(map(tuple, fetches[KEY].to_numpy())) == sorted(map(tuple, made[KEY].to_numpy()))
    joined = fetches.merge(made, on=KEY, suffixes=("", "_made"))
    assert (joined.start_ns_made + joined.duration_ns_made <= joined.start_ns + joined.duration_ns).all()


def test_without_workers_the_stages_fill_the_wait(tmp_path: Path) -> None:
    recorded = record(tmp_path, lambda: train(DataLoader(Samples(read_ms=2), 4)))
    work = recorded.run.frame("stages").query("kind == 'work'")
    asleep_ns = 2_000_000 * work[work.stage == "read"]["items"].sum()
    assert 0 < asleep_ns < work.duration_ns.sum() < sum(recorded.count("data_wait_ns"))


def test_small_batches_made_here_are_mostly_not_timed_and_still_all_there(tmp_path: Path) -> None:
    points = [(torch.ones(4), n % 2) for n in range(640)]
    recorded = record(tmp_path, lambda: classify(DataLoader(points, 8), 2))
    fetches = recorded.run.frame("fetches").set_index(KEY).duration_ns.rename("fetch_ns")
    made = recorded.run.frame("stages")
    assert set(made.groupby(KEY).size()) == {2}  # read and collate
    assert made.longest_ns.notna().sum() < 20
    took = made.groupby(KEY)[["duration_ns"]].sum().join(fetches)
    assert len(took) == 160
    assert (took.duration_ns <= took.fetch_ns).all()
    assert (took.duration_ns > 0).all()
    assert set(made["items"]) == {8}


def test_the_option_switches_it_off(tmp_path: Path) -> None:
    recorded = record(tmp_path, lambda: train(DataLoader(Samples(), 4, num_workers=1), 1), data_pipeline=False)
    assert len(recorded.train) == 6
    assert recorded.run.rank().status("stages").state in ("off", "missing")


def test_a_loader_in_a_thread_is_recorded_too(tmp_path: Path) -> None:
    import threading

    def loop() -> None:
        side = threading.Thread(target=lambda: list(DataLoader(Numbers(64), 8)))
        side.start()
        train(DataLoader(Samples(), 4), 1)
        side.join()

    recorded = record(tmp_path, loop)
    made = recorded.run.frame("stages").query("stage == 'collate'")
    assert sorted(made.groupby("loader").size()) == [6, 8]
