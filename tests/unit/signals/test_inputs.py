"""Input that is no DataLoader is data wait where the script says what it is, and no part of an update anywhere."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import collector
from collector.format.run import open_run
from collector.format.schema.errors import UsageError
from tests.support import forking, shapes
from tests.support.recording import Recorded, assert_sound, record

READ_NS = 10_000_000
BATCHES = 12


def read_batches(count: int = BATCHES) -> Iterator[Any]:
    for _ in range(count):
        time.sleep(READ_NS / 1e9)
        yield torch.randn(16, 16), torch.randint(0, 4, (16,))


class Prefetcher:
    """Batches that a thread of its own makes, as tf.data and its like do."""

    def __init__(self) -> None:
        self.batches = queue.Queue[Any](2)
        threading.Thread(target=self.feed, daemon=True).start()

    def feed(self) -> None:
        for batch in read_batches():
            self.batches.put(batch)
        self.batches.put(None)

    def __iter__(self) -> Prefetcher:
        return self

    def __next__(self) -> Any:
        batch = self.batches.get()
        if batch is None:
            raise StopIteration
        return batch

    def __len__(self) -> int:
        return BATCHES


def train(batches: Any) -> None:
    model = shapes.Net()
    shapes.train_on(model, shapes.sgd(model), batches)


@pytest.mark.parametrize("make", [read_batches, Prefetcher, lambda: list(read_batches())])
def test_waiting_for_a_watched_iterable_is_data_wait(tmp_path: Path, make: Callable[[], Any]) -> None:
    def loop() -> None:
        for _ in range(2):
            train(collector.watch(make()))

    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    assert recorded.kinds == {"train": 2 * BATCHES}
    assert recorded.count("batch") == [*range(BATCHES)] * 2
    assert recorded.count("epoch") == [1] * BATCHES + [2] * BATCHES
    assert recorded.count("samples") == [16] * 2 * BATCHES
    if make is read_batches:
        assert min(recorded.count("data_wait_ns")) >= READ_NS
        assert min(recorded.count("gap_ns")) < READ_NS


def test_a_watched_iterable_is_one_loader_of_the_run(tmp_path: Path) -> None:
    def loop() -> None:
        train(collector.watch(read_batches()))
        train(collector.watch(read_batches()))
        train(collector.watch(Prefetcher(), name="frames"))

    loaders = record(tmp_path, loop).run.rank().manifest.loaders
    assert [(loader.dataset, loader.watched, loader.length_batches) for loader in loaders] == [
        ("read_batches", True, None),
        ("frames", True, BATCHES),
    ]


def test_waiting_for_an_asynchronous_iterable_is_data_wait(tmp_path: Path) -> None:
    async def stream() -> Any:
        for batch in read_batches():
            await asyncio.sleep(READ_NS / 1e9)
            yield batch

    async def loop() -> None:
        model = shapes.Net()
        optimizer = shapes.sgd(model)
        async for batch in collector.watch(stream()):
            shapes.train_on(model, optimizer, [batch])

    recorded = record(tmp_path, lambda: asyncio.run(loop()))
    assert_sound(recorded)
    assert recorded.kinds == {"train": BATCHES}
    assert min(recorded.count("data_wait_ns")[1:]) >= 2 * READ_NS


def test_a_data_loader_inside_of_a_watched_iterable_keeps_its_batches(tmp_path: Path) -> None:
    def ahead() -> Iterator[Any]:
        yield from shapes.loader(num_workers=2)

    recorded = record(tmp_path, lambda: train(collector.watch(ahead())))
    assert_sound(recorded)
    assert recorded.kinds == {"train": 10}
    assert recorded.count("batch") == list(range(10))
    assert recorded.count("loader")[1:] == [1] * 9
    queues = recorded.run.table("queues").to_pylist()
    assert {row["loader"] for row in queues} == {1}


@pytest.mark.parametrize("kind", [DataLoader, list])
def test_watching_changes_nothing_of_what_is_iterated(kind: Callable[[Any], Any]) -> None:
    items = kind([torch.zeros(1), torch.ones(1)])
    watched = collector.watch(items)
    assert [item.tolist() for item in watched] == [item.tolist() for item in items]
    assert len(watched) == len(items)
    assert bool(watched)


def test_a_watched_iterable_keeps_its_own_attributes_and_errors() -> None:
    watched: Any = collector.watch(Prefetcher())
    assert watched.batches.maxsize == 2
    with pytest.raises(TypeError, match="has no len"):
        len(collector.watch(read_batches()))
    with pytest.raises(UsageError, match="something to iterate over, not int"):
        collector.watch(3)  # type: ignore[arg-type]


def test_an_error_in_a_watched_iterable_reaches_the_loop(tmp_path: Path) -> None:
    def broken() -> Iterator[Any]:
        yield from read_batches(3)
        raise OSError("the disk is gone")

    def loop() -> None:
        with pytest.raises(OSError, match="the disk is gone"):
            train(collector.watch(broken()))

    assert record(tmp_path, loop).kinds == {"train": 3}


def read_in_a_stage() -> None:
    model = shapes.Net()
    optimizer = shapes.sgd(model)
    batches = read_batches()
    for _ in range(BATCHES):
        with collector.stage("read"):
            batch = next(batches)
        shapes.train_on(model, optimizer, [batch])


@pytest.mark.parametrize("options", [{}, {"data_pipeline": False}])
def test_reading_in_a_stage_is_data_wait(tmp_path: Path, options: dict[str, bool]) -> None:
    recorded = record(tmp_path, read_in_a_stage, **options)
    assert_sound(recorded)
    assert recorded.kinds == {"train": BATCHES}
    # What is read before the first step belongs to the start of the run.
    assert min(recorded.count("data_wait_ns")[1:]) >= READ_NS
    assert min(recorded.count("gap_ns")) < READ_NS


def test_fetches_of_a_data_loader_inside_of_a_stage_stay_fetches(tmp_path: Path) -> None:
    def loop() -> None:
        model = shapes.Net()
        optimizer, batches = shapes.sgd(model), iter(shapes.loader(num_workers=1))
        for _ in range(10):
            with collector.stage("read"):
                batch = next(batches)
            shapes.train_on(model, optimizer, [batch])

    recorded = record(tmp_path, loop)
    assert_sound(recorded)
    assert recorded.count("batch") == list(range(10))
    assert recorded.count("fetches") == [1] * 10


class Reader:
    """An iterator of the script's own."""

    def __init__(self) -> None:
        self.batches = read_batches()

    def __iter__(self) -> Reader:
        return self

    def __next__(self) -> Any:
        time.sleep(READ_NS / 1e9)
        return next(self.batches)


def take_from_a_slow_thread() -> Iterator[Any]:
    for batch in Prefetcher():
        time.sleep(READ_NS / 1e9)
        yield batch


def read_shards() -> Iterator[Any]:
    """A pipeline as webdataset builds them, of stages that pull from each other."""
    webdataset = pytest.importorskip("webdataset")
    samples = ({"__key__": str(index), "x": torch.randn(16), "y": index % 4} for index in range(16 * BATCHES))
    stages = (webdataset.to_tuple("x", "y"), webdataset.map(_wait_a_little), webdataset.batched(16, partial=False))
    for x, y in webdataset.DataPipeline(lambda: samples, *stages):
        yield x, torch.as_tensor(y)


def _wait_a_little(sample: Any) -> Any:
    time.sleep(READ_NS / 16e9)
    return sample


def stream_rows() -> Iterator[Any]:
    datasets = pytest.importorskip("datasets")
    rows = datasets.IterableDataset.from_generator(
        lambda: ({"x": [float(index)] * 16, "y": index % 4} for index in range(16 * BATCHES))
    )
    for batch in rows.map(_wait_a_little).iter(batch_size=16):
        yield torch.tensor(batch["x"]), torch.tensor(batch["y"])


UNSEEN = (read_batches, Reader, take_from_a_slow_thread, read_shards, stream_rows)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("loop", "advised"), [*((lambda make=make: train(make()), True) for make in UNSEEN), (read_in_a_stage, False)]
)
def test_a_run_whose_gap_may_be_its_input_says_how_to_watch_it(
    tmp_path: Path, loop: Callable[[], None], advised: bool
) -> None:
    warnings = record(tmp_path, loop).run.rank().manifest.warnings
    said = [warning.text for warning in warnings if warning.code == "input_unseen"]
    assert bool(said) is advised
    if advised:
        assert "for batch in stepscope.watch(batches)" in said[0]


def train_with_closure(batches: Any, read: Callable[[], Any] | None = None) -> None:
    model = shapes.Net()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    for batch in batches:

        def closure(batch: Any = batch) -> torch.Tensor:
            x, y = batch if read is None else read()
            optimizer.zero_grad()
            loss: torch.Tensor = shapes.loss_of(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)


def check_lbfgs(recorded: Recorded) -> None:
    assert_sound(recorded)
    assert recorded.kinds == {"train": BATCHES}


def test_reading_between_closures_is_no_update(tmp_path: Path) -> None:
    recorded = record(tmp_path, lambda: train_with_closure(read_batches()))
    check_lbfgs(recorded)
    assert min(recorded.count("gap_ns")[1:]) >= READ_NS
    watched = record(tmp_path / "watched", lambda: train_with_closure(collector.watch(read_batches())))
    check_lbfgs(watched)
    assert min(watched.count("data_wait_ns")) >= READ_NS


def test_reading_inside_of_a_closure_is_no_update(tmp_path: Path) -> None:
    batches = read_batches(100)
    recorded = record(tmp_path, lambda: train_with_closure(range(BATCHES), lambda: next(batches)))
    check_lbfgs(recorded)
    assert min(recorded.count("gap_ns")[1:]) >= READ_NS


def test_work_in_a_closure_before_the_forward_prepares_the_batch_of_the_loader(tmp_path: Path) -> None:
    def train_slowly() -> None:
        loader = DataLoader([(torch.randn(16), index % 4) for index in range(2 * BATCHES)], batch_size=2)
        for batch in loader:

            def prepare(batch: Any = batch) -> Any:
                time.sleep(READ_NS / 1e9)
                return batch

            train_with_closure([batch], prepare)

    recorded = record(tmp_path, train_slowly)
    check_lbfgs(recorded)
    assert min(recorded.count("h2d_ns")) >= READ_NS
    assert sum(recorded.count("gap_ns")) < sum(recorded.count("h2d_ns"))


def test_a_detailed_window_opens_in_a_loop_of_closures(tmp_path: Path) -> None:
    recorded = record(tmp_path, lambda: train_with_closure(read_batches()), window=(4, 2))
    check_lbfgs(recorded)
    assert [(window.first_step, window.last_step) for window in recorded.run.rank().manifest.windows] == [(4, 5)]
    assert recorded.run.table("operators").num_rows


WATCHING = """
import collector, time, torch
from tests.unit.signals.test_inputs import Prefetcher, read_batches, train

def compute_batches():
    for x, y in list(read_batches()):
        until = time.thread_time() + 0.003
        while time.thread_time() < until:
            pass
        yield x, y

profiler = collector.Profiler("run", window=None)
train(collector.watch(read_batches(), name="sleeps"))
train(collector.watch(compute_batches(), name="computes"))
train(collector.watch(Prefetcher(), name="reads ahead"))
profiler.analyse()
"""


def test_a_run_tells_who_makes_the_items_of_a_watched_input(tmp_path: Path) -> None:
    """In a process of its own: threads that other tests have left would be taken for those that make the items."""
    forking.run([sys.executable, "-c", WATCHING], cwd=tmp_path)
    loaders = {loader.dataset: loader for loader in open_run(tmp_path / "run").rank().manifest.loaders}
    assert {name: loader.reads_ahead for name, loader in loaders.items()} == {
        "sleeps": False,
        "computes": False,
        "reads ahead": True,
    }
    shares = {name: loader.cpu_frac or 0.0 for name, loader in loaders.items()}
    assert shares["sleeps"] < shares["computes"]
