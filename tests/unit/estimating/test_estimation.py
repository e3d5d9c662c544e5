"""What is proposed follows from what batches take, and every value can be given instead."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset, IterableDataset

import collector
from collector.estimating.estimation import Estimate
from collector.estimating.simulation import bound_workers
from collector.format.schema.errors import OptionError, UsageError

GIVEN: dict[str, Any] = {"batch_ns": 40_000_000, "batch_cpu_frac": 1.0, "batch_bytes": 1 << 20, "free_bytes": 1 << 30}


class Sleeping(Dataset[Any]):  # type: ignore[misc]
    def __init__(self, count: int = 256, sleep_s: float = 0.002) -> None:
        self.count, self.sleep_s = count, sleep_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.sleep_s)
        return np.full(1000, index, np.float32)


class Counting(IterableDataset[Any]):  # type: ignore[misc]
    def __iter__(self) -> Any:
        return iter(np.arange(8000, dtype=np.int64).reshape(-1, 8))


def estimate(source: Any = (), **given: Any) -> Estimate:
    return collector.estimate(source, quiet=True, **given)


def test_waiting_samples_want_workers_even_on_few_cores() -> None:
    found = estimate(DataLoader(Sleeping(), batch_size=8), batches=4, step_ns=4_000_000, cores=2.0)
    assert 3 <= found.num_workers <= 8  # 16 ms of sleep a batch, 4 ms a step
    assert found.inputs.batch_ns > 15e6  # and more where the machine is busy
    assert found.inputs.batch_cpu_frac < 0.3
    assert found.inputs.batch_bytes == 8 * 4000
    assert found.now_step_ns is not None
    assert found.predicted_step_ns < found.now_step_ns / 2


def test_work_on_processors_wants_no_more_workers_than_cores() -> None:
    found = estimate(**GIVEN, step_ns=10_000_000, cores=4.0)
    assert 3 <= found.num_workers <= 4


def test_batches_that_cost_nothing_want_no_workers() -> None:
    assert estimate(**{**GIVEN, "batch_ns": 1000}, step_ns=50_000_000).num_workers == 0


def test_what_is_made_ahead_fits_into_the_share_of_memory() -> None:
    found = estimate(**{**GIVEN, "batch_bytes": 100 << 20}, step_ns=10_000_000, cores=4.0, max_memory_util=0.5)
    assert found.prefetch_factor * found.num_workers * 100 <= 512
    low, high = found.batch_size_range
    assert low == 8
    assert high * found.prefetch_factor * found.num_workers * 100 / 32 <= 512


def test_every_value_can_be_given() -> None:
    found = estimate(**GIVEN, num_workers=5, prefetch_factor=3, batch_size=7, cores=2.0)
    assert (found.num_workers, found.prefetch_factor, found.batch_size, found.inputs.cores) == (5, 3, 7, 2.0)
    assert "num_workers" in found.overridden


def test_inputs_and_formulas_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    found = collector.estimate(Sleeping(64, 0.0), batches=2)
    printed = capsys.readouterr().out
    assert printed == str(found)
    assert re.search(r"step_ns = [\d,]+ ns \([\d,.]+ ms\)", printed)
    for word in ("step_ns", "cores", "free_bytes", "max_memory_util", "batch_bytes", "num_workers = the fewest"):
        assert word in printed


def test_iterable_datasets_and_plain_datasets_are_measured() -> None:
    assert estimate(Counting(), batches=2, batch_size=4).inputs.batch_bytes == 4 * 64
    assert estimate(Sleeping(10, 0.0), batches=2, batch_size=4).now_step_ns is None


def test_an_unknown_option_is_rejected_by_name() -> None:
    with pytest.raises(OptionError, match=r"workers.*num_workers"):
        estimate(Sleeping(8), workers=3)
    with pytest.raises(OptionError, match="cores takes a number"):
        estimate(Sleeping(8), cores="many")


@pytest.mark.parametrize("source", [3, None, "runs/digits", 2.5, collector.open_run])
def test_what_has_no_batches_is_a_plain_error(source: Any) -> None:
    with pytest.raises(UsageError, match=r"estimate\(\) takes a DataLoader or a dataset, not .*suggestions\(\)"):
        estimate(source)


def test_the_estimate_and_the_suggestion_bound_the_workers_alike() -> None:
    waiting = {**GIVEN, "batch_ns": 2_000_000_000, "batch_cpu_frac": 0.01}
    found = estimate(**waiting, step_ns=10_000_000, cores=2.0)
    assert found.num_workers == bound_workers(2.0, 0.01) == 8
    assert any("up to 8" in text for text in found.formulas)


def test_an_estimate_is_explained_once_and_shown_in_one_line_after_that(capsys: pytest.CaptureFixture[str]) -> None:
    found = collector.estimate((), **GIVEN)
    assert capsys.readouterr().out.count("Proposal:") == 1
    assert repr(found).startswith(f"Estimate(num_workers={found.num_workers}, prefetch_factor=")
    assert "\n" not in repr(found)
    assert "Proposal" not in found._repr_html_()
    assert not hasattr(found, "_repr_pretty_")


def test_an_empty_dataset_is_a_plain_error() -> None:
    with pytest.raises(UsageError, match="empty"):
        estimate(Sleeping(0))


class Computing(Dataset[Any]):  # type: ignore[misc]
    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        until = time.thread_time_ns() + 2_000_000
        while time.thread_time_ns() < until:
            pass
        return index


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="this system counts no waits")
def test_on_a_busy_host_pure_computation_is_judged_by_processor_time() -> None:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        time.sleep(0.3)  # until they run
        found = estimate(DataLoader(Computing(), batch_size=8), batches=6, cores=2.0)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert found.inputs.batch_cpu_frac > 0.8
    assert found.num_workers <= 2
    assert "the host was busy" in str(found)
