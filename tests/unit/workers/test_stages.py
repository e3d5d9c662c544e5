"""Real DataLoaders: what is slow shows up in its stage, and the user sees nothing of it."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, Subset
from torch.utils.data import dataloader as module
from torch.utils.data._utils import pin_memory as pin_module
from torch.utils.data._utils import worker as worker_module

from tests.support.datasets import (
    Augmented,
    Broken,
    Compose,
    Double,
    Numbers,
    Profiled,
    Samples,
    Sleep,
    Tags,
    Uneven,
    WhoAmI,
    add_one,
    slow_collate,
)
from tests.support.loaders import begin_recording, record_loader, sum_ms


def find_slowest(rows: pd.DataFrame) -> str:
    return max(("read", "transform", "collate"), key=lambda stage: sum_ms(rows, stage))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("dataset", "collate", "slow"),
    [
        (Samples(read_ms=4), None, "read"),
        (Samples(transform=Compose(Sleep(4), Double())), None, "transform"),
        (Samples(), slow_collate, "collate"),
    ],
)
def test_the_slow_stage_is_named(tmp_path: Path, workers: int, dataset: Any, collate: Any, slow: str) -> None:
    rows = record_loader(tmp_path, lambda: DataLoader(dataset, 8, num_workers=workers, collate_fn=collate))
    assert find_slowest(rows) == slow
    assert sum_ms(rows, slow) > 0.7 * (180 if slow == "collate" else 96)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_are_not_forked_are_timed(tmp_path: Path, method: str) -> None:
    data = Samples(transform=Compose(Sleep(3), add_one))
    rows = record_loader(tmp_path, lambda: DataLoader(data, 8, num_workers=1, multiprocessing_context=method))
    work = rows[(rows.kind == "work") & (rows.stage == "transform")]
    assert set(work.detail) == {"Compose", "Sleep", "add_one"}
    assert sum_ms(rows, "read", "setup") > 100  # a new interpreter and its imports


def test_each_transform_has_its_own_time(tmp_path: Path) -> None:
    data = Samples(transform=Compose(Sleep(3), Double(), add_one, Compose(Sleep(1))))
    rows = record_loader(tmp_path, lambda: DataLoader(data, 8))
    took_ms = rows[rows.stage == "transform"].groupby("detail", observed=True).duration_ns.sum() / 1e6
    assert took_ms["Sleep"] > 0.9 * 96
    assert took_ms.idxmax() == "Sleep"


def test_a_transform_that_is_a_method_is_found(tmp_path: Path) -> None:
    rows = record_loader(tmp_path, lambda: DataLoader(Augmented(), 8, num_workers=1))
    assert set(rows[rows.stage == "transform"].detail) == {"Augmented.augment"}
    assert find_slowest(rows) == "transform"


def test_the_slowest_sample_is_named_by_its_index(tmp_path: Path) -> None:
    rows = record_loader(tmp_path, lambda: DataLoader(Samples(slow_index=13), 8, num_workers=2))
    reads = rows[(rows.stage == "read") & (rows.kind == "work")]
    slowest = reads.loc[reads.longest_ns.idxmax()]
    assert (slowest.longest_item, slowest.batch) == (13, 1)
    assert slowest.longest_ns > 295e6


def test_samples_of_a_subset_are_told_apart(tmp_path: Path) -> None:
    rows = record_loader(tmp_path, lambda: DataLoader(Subset(Samples(slow_index=13), range(10, 20)), 5))
    reads = rows[rows.stage == "read"]
    assert reads.loc[reads.longest_ns.idxmax()].longest_item == 3


def test_rows_of_a_worker_never_overlap(tmp_path: Path) -> None:
    data = Samples(transform=Compose(Sleep(1), add_one))
    rows = record_loader(tmp_path, lambda: DataLoader(data, 4, num_workers=2))
    for _, own in rows[rows.stage != "send"].groupby("replica"):
        ordered = own.sort_values("start_ns", kind="stable")
        ends = (ordered.start_ns + ordered.duration_ns).to_numpy()
        assert (ordered.start_ns.to_numpy()[1:] >= ends[:-1]).all()


def test_every_batch_is_there_once_with_its_samples(tmp_path: Path) -> None:
    rows = record_loader(tmp_path, lambda: DataLoader(Samples(size=22), 4, num_workers=2), epochs=2)
    reads = rows[(rows.stage == "read") & (rows.kind == "work")].sort_values(["epoch", "batch"])
    assert list(zip(reads.epoch, reads.batch, strict=True)) == [(e, b) for e in (1, 2) for b in range(6)]
    assert reads["items"].tolist() == [4, 4, 4, 4, 4, 2] * 2


def test_an_iterable_dataset_gives_only_real_batches(tmp_path: Path) -> None:
    rows = record_loader(tmp_path, lambda: DataLoader(Uneven(), 4, num_workers=2))
    reads = rows[(rows.stage == "read") & (rows.kind == "work")]
    assert sorted(reads["items"]) == [1, 4, 4, 4, 4, 4, 4]
    assert sum_ms(rows, "read") > 24


def test_idle_workers_wait_for_input(tmp_path: Path) -> None:
    recording = begin_recording(tmp_path)
    for _ in DataLoader(Samples(size=12), 2, num_workers=1, prefetch_factor=1):
        Sleep(20)(None)
    rows = recording.finish()
    assert sum_ms(rows, "read", "input_wait") > 60


def test_a_full_pipe_is_a_wait_for_output(tmp_path: Path) -> None:
    recording = begin_recording(tmp_path)
    for _ in DataLoader(Tags(size=4), 1, num_workers=1, collate_fn=list):
        Sleep(20)(None)
    rows = recording.finish()
    sends = rows[(rows.stage == "send") & (rows.kind == "work")]
    assert (sends.bytes > 400_000).all()
    assert sum_ms(rows, "send", "output_wait") > 10


def test_samples_that_cost_nothing_are_timed_now_and_then(tmp_path: Path) -> None:
    rows = record_loader(tmp_path, lambda: DataLoader(Numbers(32 * 100), 32, num_workers=1))
    reads = rows[(rows.stage == "read") & (rows.kind == "work")]
    assert len(reads) == 100
    assert 1 <= reads.longest_ns.notna().sum() < 30


def test_the_user_sees_own_objects_in_the_worker(tmp_path: Path) -> None:
    recording = begin_recording(tmp_path)
    data = WhoAmI(transform=Compose(Double()))
    seen = [bool(batch.all()) for workers in (0, 2) for batch in DataLoader(data, 4, num_workers=workers)]
    recording.finish()
    assert all(seen)


def read_error(workers: int) -> list[str]:
    """Return the lines of the error that reaches the user; iterate on to the end, so that the workers end too."""
    lines: list[str] = []
    batches = iter(DataLoader(Broken(), 4, num_workers=workers))
    while True:
        try:
            next(batches)
        except ValueError as error:  # noqa: PERF203  one batch fails, the next must come
            lines = str(error).splitlines()
        except StopIteration:
            return lines


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_in_the_dataset_passes_through(tmp_path: Path, workers: int) -> None:
    plain = read_error(workers)
    recording = begin_recording(tmp_path)
    timed = read_error(workers)
    recording.finish()
    assert plain[-1].endswith("sample 5 is damaged")
    # Python underlines where it can: with and without our frame that is another line.
    ours = ("collector/workers", "return self._source[index]")
    said = [line for line in timed if not any(mark in line for mark in ours)]
    assert [line for line in said if line.strip("~^ ")] == [line for line in plain if line.strip("~^ ")]


def test_everything_is_as_it_was_afterwards(tmp_path: Path) -> None:
    data = Samples(transform=Compose(Double(), add_one))
    before = (vars(module._MultiProcessingDataLoaderIter).copy(), vars(module._SingleProcessDataLoaderIter).copy())
    loops = (worker_module._worker_loop, pin_module._pin_memory_loop)
    record_loader(tmp_path, lambda: DataLoader(data, 8, num_workers=0))
    assert before == (vars(module._MultiProcessingDataLoaderIter), vars(module._SingleProcessDataLoaderIter))
    assert loops == (worker_module._worker_loop, pin_module._pin_memory_loop)
    assert "__call__" in vars(Double)
    assert Double.__call__.__name__ == "__call__"
    assert data.transform.transforms[1] is add_one
    assert not hasattr(Double.__call__, "__wrapped__")


def test_an_iterator_dies_as_soon_as_without_us(tmp_path: Path) -> None:
    recording = begin_recording(tmp_path)
    gc.disable()
    try:
        iterator = iter(DataLoader(Samples(), 8))
        next(iterator)
        fetcher = weakref.ref(iterator._dataset_fetcher)
        del iterator
        assert fetcher() is None
    finally:
        gc.enable()
    recording.finish()


def test_a_live_iterator_goes_on_after_the_recording(tmp_path: Path) -> None:
    recording = begin_recording(tmp_path)
    iterator = iter(DataLoader(Samples(), 8))
    next(iterator)
    recording.finish()
    assert "fetch" not in vars(iterator._dataset_fetcher)
    assert next(iterator)[0].equal(torch.ones(4) * 8)


def test_workers_run_on_when_there_is_no_room_to_write(tmp_path: Path) -> None:
    recording = begin_recording(tmp_path)
    recording.context.events.chmod(0o700)
    recording.context.events.rename(tmp_path / "gone")
    assert len(list(DataLoader(Samples(), 8, num_workers=1))) == 3
    recording.signal.remove()
    recording.context.undo.restore()


def test_a_profiler_that_was_on_is_off_in_a_forked_worker(tmp_path: Path) -> None:
    recording = begin_recording(tmp_path)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        recorded = [bool(item) for item in DataLoader(Profiled(), batch_size=None, num_workers=1)]
    recording.finish()
    assert recorded == [False]
