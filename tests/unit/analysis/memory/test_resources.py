"""Samples are placed on the steps by their time; and the load of the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    summarize_host,
)
from profiler_server.diagnosis.measuring import measure_case
from tests.support.cases import Plant, build_case_run, plan_of
from tests.support.machines import build_machine
from tests.support.must import must
from tests.support.row_edits import cpu_cores
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
    power = must(resources.find("gpu 0", "power_w"))
    assert 420 <= power.mean <= power.peak <= 460
    assert resources.find("gpu 1", "power_w") is None
    assert (resources.unit, resources.outside) == ("step", 0)


def test_a_range_of_steps_narrows_the_samples(tmp_path: Path) -> None:
    rank = open_machine(tmp_path / "run")
    series = must(read_resources(rank, read_scale(rank), (50, 90)).find("process", "cpu_cores"))
    assert series.x.min() >= 50
    assert series.x.max() < 91


def test_workers_add_up_and_one_that_came_later_adds_nothing_before() -> None:
    first = Series("worker 0", "cpu_cores", np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.5, 0.5]))
    later = Series("worker 1", "cpu_cores", np.array([3.0]), np.array([1.0]))
    total = must(sum_series([first, later], "workers"))
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


ALL = (0, 10**12)


def queueing(source: str, share: float) -> list[dict[str, Any]]:
    return [
        {"start_ns": row["start_ns"], "source": source, "metric": "run_queue_frac", "value": share}
        for row in cpu_cores(1.0, 1.0)[::2]
    ]


def test_others_are_what_the_system_used_beyond_the_run(tmp_path: Path) -> None:
    rank = build_case_run(tmp_path / "run", Plant(tables={"resources": cpu_cores(process=1.5, system=3.5)})).rank()
    host = must(summarize_host(rank, *ALL))
    assert (host.process, host.system, host.others, host.stretch) == (1.5, 3.5, 2.0, None)


def test_others_on_cores_that_the_run_may_not_use_are_told_from_those_beside_it(tmp_path: Path) -> None:
    """One core of four is the run's: it gets half of it, another program the rest, and two more are busy elsewhere."""
    rows = cpu_cores(process=0.5, system=3.0)
    usable = [{**row, "metric": "usable_cpu_cores", "value": 1.0} for row in rows if row["source"] == "system"]
    queued = queueing("process", 0.5)
    run = build_case_run(
        tmp_path / "run",
        Plant(plan_of(), manifest={"usable_cores": 1.0}, tables={"resources": [*rows, *usable, *queued]}),
    )
    case = must(measure_case(run, run.rank()))
    assert case.host.load is not None
    assert case.host.load.others == pytest.approx(0.5)
    assert case.loading.loop.model.others == pytest.approx(1.0, abs=0.1)
    assert case.demand_frac == pytest.approx(1.0)


def test_time_in_the_queue_for_a_processor_stretches_work(tmp_path: Path) -> None:
    rows = [*cpu_cores(process=0.5, system=4.0), *queueing("process", 0.5)]
    run = build_case_run(tmp_path / "run", Plant(plan_of(data_wait=20.0), tables={"resources": rows}))
    host = must(summarize_host(run.rank(), *ALL))
    assert host.stretch == pytest.approx(2.0)
    case = must(measure_case(run, run.rank()))
    assert case.loading.loop.contention_frac >= 0.4
    # What was waiting for a processor is no longer counted as the work itself.
    assert case.loading.loop.model.steps[0].wall_ns < 0.6 * 64e6


def test_a_host_that_was_not_sampled_is_none(tmp_path: Path) -> None:
    assert summarize_host(build_case_run(tmp_path / "run", Plant()).rank(), *ALL) is None
