"""What a batch costs: its reading, its processor time where few were looked into, and taking it over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from collector import open_run
from collector.format.parts import build_table_from_rows
from profiler_server.analysis.data.batches import count_beside, fill_in_proportion, read_batches, read_reading
from profiler_server.analysis.data.fetches import compare_receiving
from profiler_server.analysis.recorded_facts import read_sampler
from profiler_server.facts.loading import BatchTimes, Receiving
from tests.support.host_cases import open_files, read_cold, sampled, share_storage
from tests.support.must import must
from tests.support.plants import Plant, build_case_run, slow
from tests.support.row_edits import Row, compute_all


def test_intervals_that_overlap_are_counted() -> None:
    starts, lengths = np.array([0, 0, 100, 150]), np.array([50, 50, 100, 50])
    assert count_beside(starts, lengths).tolist() == [2.0, 2.0, 1.5, 2.0]


def test_storage_that_gives_no_more_to_more_workers_is_seen(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", Plant(slow("read"), edit_stages=share_storage))
    found = must(read_reading(run.rank(0), 0))
    assert found.crowding is not None
    assert found.crowding.many == pytest.approx(2.0, rel=0.1)
    assert found.crowding.few == pytest.approx(1.0, rel=0.1)
    assert found.crowding.yield_frac == pytest.approx(0.0, abs=0.1)


def test_files_and_epochs_are_means_per_batch(tmp_path: Path) -> None:
    opened = must(read_reading(build_case_run(tmp_path / "a", Plant(edit_stages=open_files(64, 4.0))).rank(0), 0))
    assert (opened.files, opened.open_ns, opened.bytes) == (64.0, 4e6, 64 * 4096.0)
    cold = must(read_reading(build_case_run(tmp_path / "b", Plant(edit_stages=read_cold)).rank(0), 0))
    assert (cold.epochs, cold.first_ns, cold.later_ns) == (2, 100e6, 10e6)


@pytest.mark.parametrize(
    ("opened", "longest_ns", "at_once"), [(0, None, True), (0, 5 * 10**6, False), (None, None, False)]
)
def test_a_batch_read_in_one_call_has_no_longest_sample(
    opened: int | None, longest_ns: int | None, at_once: bool, tmp_path: Path
) -> None:
    def edit(stages: list[Row]) -> None:
        for row in stages:
            if row["stage"] == "read":
                row |= {"opened": opened, "open_ns": opened, "longest_ns": longest_ns}

    found = must(read_reading(build_case_run(tmp_path / "run", Plant(edit_stages=edit)).rank(0), 0))
    assert found.at_once is at_once


@pytest.mark.parametrize(
    "noted",
    [None, 3, [], [None], [{"loader": 0}], [{"loader": 0, "epochs": 0, "batches": 1, "first_ns": 1, "rest_ns": 1}]],
)
def test_damaged_facts_are_no_sampler(noted: object) -> None:
    assert read_sampler({"samplers": noted}, 0) is None


def test_a_sampler_is_that_of_its_loader() -> None:
    found = must(read_sampler(sampled(2_000, loader=1), 1))
    assert (found.batch_ns, found.kind) == (2_000.0, "Weighted")
    assert read_sampler(sampled(2_000, loader=1), 0) is None


MS = 1_000_000


def stages_of(batch: int, begin_ms: float) -> list[Row]:
    """One worker makes a batch for 10 ms from `begin_ms` on and sends it for 1 ms."""
    common = {"replica": 0, "kind": "work", "loader": 0, "epoch": 1, "items": 4}
    return [
        {**common, "stage": stage, "batch": batch, "start_ns": int(at * MS), "duration_ns": int(took * MS)}
        for stage, at, took in (("read", begin_ms, 10), ("send", begin_ms + 10, 1))
    ]


def fetch_of(batch: int, asked_ms: float, took_ms: float) -> Row:
    common = {"index": batch, "step": batch + 1, "loader": 0, "epoch": 1, "batch": batch}
    return {**common, "start_ns": int(asked_ms * MS), "duration_ns": int(took_ms * MS)}


def receive(period_ms: float, asked_ms: float, took_ms: float, batches: int = 30) -> Receiving | None:
    """A worker begins a batch every so often; each is asked for so long after its beginning."""
    stages = [row for n in range(batches) for row in stages_of(n, n * period_ms)]
    fetches = [fetch_of(n, n * period_ms + asked_ms, took_ms) for n in range(batches)]
    return compare_receiving(build_table_from_rows("fetches", fetches), build_table_from_rows("stages", stages))


def test_the_wait_before_a_batch_has_been_sent_is_not_receiving_it() -> None:
    found = must(receive(period_ms=40.0, asked_ms=5.0, took_ms=8.0))
    assert found.idle_ns == pytest.approx(2.0 * MS)  # asked at 5, sent at 11, there at 13


def test_a_worker_that_makes_the_next_batch_is_told_from_one_that_waits() -> None:
    idle = must(receive(40.0, 13.0, 1.0))
    assert (idle.idle_ns, idle.held_ns) == pytest.approx((1.0 * MS, 0.0))
    # Every other batch is followed by the next at once, and takes 4 ms longer to take over.
    begins = [n * 20.0 - 8.0 * (n % 2) for n in range(60)]
    stages = [row for n, begin in enumerate(begins) for row in stages_of(n, begin)]
    fetches = [fetch_of(n, begin + 12.0, 1.0 if n % 2 else 5.0) for n, begin in enumerate(begins)]
    found = must(compare_receiving(build_table_from_rows("fetches", fetches), build_table_from_rows("stages", stages)))
    assert (found.idle_ns, found.held_ns) == pytest.approx((1.0 * MS, 4.0 * MS), rel=0.01)


def test_a_batch_that_is_soon_made_holds_the_interpreter_no_longer_than_that() -> None:
    begins = [n * 12.0 for n in range(60)]
    stages = [row for n, begin in enumerate(begins) for row in stages_of(n, begin)]
    fetches = [fetch_of(n, begin + 20.0, 3.0) for n, begin in enumerate(begins)]  # 2 ms of the next batch are left
    found = must(compare_receiving(build_table_from_rows("fetches", fetches), build_table_from_rows("stages", stages)))
    assert found.idle_ns + min(found.held_ns, 2.0 * MS) == pytest.approx(3.0 * MS, rel=0.01)


def test_choosing_samples_within_the_request_is_not_receiving() -> None:
    taken = replace(BatchTimes({"read": np.ones(3)}, np.ones(3), None, 4.0), receiving=Receiving(22.0 * MS, 1.0 * MS))
    assert taken.without_sampling(21.0 * MS).receiving == Receiving(1.0 * MS, 1.0 * MS)
    assert taken.without_sampling(30.0 * MS).receiving == Receiving(0.0, 1.0 * MS)


def look_into_some(stages: list[Row]) -> None:
    """All of the work is on a processor, and one batch in ten says so."""
    compute_all(stages)
    for row in stages:
        if row["batch"] is not None and row["batch"] % 10 and row["stage"] != "collate":
            row["cpu_ns"] = None


def read(path: Path, plant: Plant) -> BatchTimes:
    return must(read_batches(build_case_run(path / "run", plant).rank(0), 0))


def test_batches_that_were_not_looked_into_compute_as_those_that_were(tmp_path: Path) -> None:
    some, every = (read(tmp_path / str(n), Plant(slow("read"), edit_stages=edit)) for n, edit in enumerate(EDITS))
    assert some.cpu_frac == pytest.approx(every.cpu_frac)
    assert some.stretch == every.stretch == 1.0


def test_statistics_extend_what_was_counted(tmp_path: Path) -> None:
    seen = []
    for number, edit in enumerate(EDITS):
        run = build_case_run(tmp_path / str(number), Plant(slow("read"), edit_stages=edit))
        seen.append(open_run(run.path).statistics().table["cpu_ns"].to_pylist())
    assert seen[0] == seen[1]


def test_what_is_known_of_no_batch_is_not_made_up() -> None:
    part, whole, known = np.array([4, 0, 0]), np.array([8, 20, 6]), np.array([True, False, False])
    groups = np.array([0, 0, 1])
    assert fill_in_proportion(part, whole, known, groups).tolist() == [4.0, 10.0, 0.0]


EDITS = look_into_some, compute_all
