"""How a loader reads, by what its workers wrote down."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from profiler_server.analysis.data.batches import count_beside, read_reading
from profiler_server.analysis.recorded_facts import read_sampler
from tests.support.host_cases import open_files, read_cold, sampled, share_storage
from tests.support.plants import Plant, build_case_run, slow


def test_intervals_that_overlap_are_counted() -> None:
    starts, lengths = np.array([0, 0, 100, 150]), np.array([50, 50, 100, 50])
    assert count_beside(starts, lengths).tolist() == [2.0, 2.0, 1.5, 2.0]


def test_storage_that_gives_no_more_to_more_workers_is_seen(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", Plant(slow("read"), edit_stages=share_storage))
    found = read_reading(run.rank(0), 0)
    assert found is not None
    assert found.crowding is not None
    assert found.crowding.many == pytest.approx(2.0, rel=0.1)
    assert found.crowding.few == pytest.approx(1.0, rel=0.1)
    assert found.crowding.yield_frac == pytest.approx(0.0, abs=0.1)


def test_a_run_that_counts_no_files_says_so(tmp_path: Path) -> None:
    found = read_reading(build_case_run(tmp_path / "run", Plant()).rank(0), 0)
    assert found is not None
    assert (found.files, found.open_ns, found.bytes, found.crowding, found.first_ns) == (None,) * 5


def test_files_and_epochs_are_means_per_batch(tmp_path: Path) -> None:
    opened = read_reading(build_case_run(tmp_path / "a", Plant(edit_stages=open_files(64, 4.0))).rank(0), 0)
    assert opened is not None
    assert (opened.files, opened.open_ns, opened.bytes) == (64.0, 4e6, 64 * 4096.0)
    cold = read_reading(build_case_run(tmp_path / "b", Plant(edit_stages=read_cold)).rank(0), 0)
    assert cold is not None
    assert (cold.epochs, cold.first_ns, cold.later_ns) == (2, 100e6, 10e6)


@pytest.mark.parametrize(
    "noted",
    [None, 3, [], [None], [{"loader": 0}], [{"loader": 0, "epochs": 0, "batches": 1, "first_ns": 1, "rest_ns": 1}]],
)
def test_damaged_facts_are_no_sampler(noted: object) -> None:
    assert read_sampler({"samplers": noted}, 0) is None


def test_a_sampler_is_that_of_its_loader() -> None:
    found = read_sampler(sampled(2_000, loader=1), 1)
    assert found is not None
    assert (found.batch_ns, found.kind) == (2_000.0, "Weighted")
    assert read_sampler(sampled(2_000, loader=1), 0) is None
