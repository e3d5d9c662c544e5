"""Samples are placed on the steps by their time; ranges narrow them; workers add up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collector.format.run import RankRun, open_run
from collector.format.schema.errors import TableMissingError
from profiler_server.analysis.memory.resources import (
    Resources,
    Series,
    StepScale,
    find_throttling,
    read_resources,
    read_scale,
    sum_series,
)
from tests.support.machines import build_machine
from tests.support.runs import RunPlan, build_run

SCALE = StepScale(np.array([1, 2]), np.array([100, 300]), np.array([200, 500]))


def open_machine(path: Path) -> RankRun:
    return open_run(build_machine(path)).rank(0)


def test_a_time_inside_of_a_step_lies_that_far_into_it() -> None:
    assert SCALE.place(np.array([100, 150, 400])).tolist() == [1.0, 1.5, 2.5]


def test_a_time_between_two_steps_lies_at_their_border_and_one_outside_nowhere() -> None:
    placed = SCALE.place(np.array([250, 99, 501]))
    assert placed[0] == 2.0
    assert np.isnan(placed[1:]).all()


def test_without_steps_the_axis_counts_seconds() -> None:
    assert StepScale.empty().unit == "s"
    assert StepScale.empty().place(np.array([2_500_000_000])).tolist() == [2.5]


def test_every_source_and_metric_is_a_series_of_its_own(tmp_path: Path) -> None:
    rank = open_machine(tmp_path / "run")
    resources = read_resources(rank, read_scale(rank))
    assert [entry.source for entry in resources.pick("cpu_cores", "worker ")] == ["worker 0", "worker 1"]
    power = resources.find("gpu 0", "power_w")
    assert power is not None
    assert 420 <= power.mean <= power.peak <= 460
    assert resources.find("gpu 1", "power_w") is None
    assert (resources.unit, resources.outside) == ("step", 0)


def test_a_range_of_steps_narrows_the_samples(tmp_path: Path) -> None:
    rank = open_machine(tmp_path / "run")
    series = read_resources(rank, read_scale(rank), (50, 90)).find("process", "cpu_cores")
    assert series is not None
    assert series.x.min() >= 50
    assert series.x.max() < 91


def test_workers_add_up_and_one_that_came_later_adds_nothing_before() -> None:
    first = Series("worker 0", "cpu_cores", np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.5, 0.5]))
    later = Series("worker 1", "cpu_cores", np.array([3.0]), np.array([1.0]))
    total = sum_series([first, later], "workers")
    assert total is not None
    assert total.value.tolist() == [0.5, 0.5, 1.5]
    assert sum_series([], "workers") is None


def test_a_run_without_samples_raises(tmp_path: Path) -> None:
    rank = open_run(build_run(tmp_path / "run", RunPlan())).rank(0)
    with pytest.raises(TableMissingError):
        read_resources(rank, read_scale(rank))


def test_throttling_is_told_by_gpu_with_its_most_frequent_cause_first() -> None:
    x = np.arange(8.0)
    hot = Series("gpu 1", "throttle_flags", x, np.array([0, 0, 0, 0, 1, 3, 2, 2.0]))
    cool = Series("gpu 0", "throttle_flags", x, np.zeros(8))
    (found,) = find_throttling(Resources((cool, hot), 8, 0, "step"))
    assert (found.source, found.share_frac) == ("gpu 1", 0.5)
    assert found.causes == (("heat", 0.375), ("power", 0.25))
