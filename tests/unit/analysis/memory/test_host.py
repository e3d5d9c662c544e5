"""Load of the host: what others use, and how long work waits for a processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from profiler_server.analysis.memory.resources import summarize_host
from profiler_server.diagnosis.measuring import measure_case
from tests.support.cases import Plant, build_case_run, plan_of
from tests.support.row_edits import cpu_cores

ALL = (0, 10**12)


def queueing(source: str, share: float) -> list[dict[str, Any]]:
    return [
        {"start_ns": row["start_ns"], "source": source, "metric": "run_queue_frac", "value": share}
        for row in cpu_cores(1.0, 1.0)[::2]
    ]


def test_others_are_what_the_system_used_beyond_the_run(tmp_path: Path) -> None:
    rank = build_case_run(tmp_path / "run", Plant(tables={"resources": cpu_cores(process=1.5, system=3.5)})).rank()
    host = summarize_host(rank, *ALL)
    assert host is not None
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
    case = measure_case(run, run.rank())
    assert case is not None
    assert case.host.load is not None
    assert case.host.load.others == pytest.approx(0.5)
    assert case.loading.loop.model.others == pytest.approx(1.0, abs=0.1)
    assert case.demand_frac == pytest.approx(1.0)


def test_time_in_the_queue_for_a_processor_stretches_work(tmp_path: Path) -> None:
    rows = [*cpu_cores(process=0.5, system=4.0), *queueing("process", 0.5)]
    run = build_case_run(tmp_path / "run", Plant(plan_of(data_wait=20.0), tables={"resources": rows}))
    host = summarize_host(run.rank(), *ALL)
    assert host is not None
    assert host.stretch == pytest.approx(2.0)
    case = measure_case(run, run.rank())
    assert case is not None
    assert case.loading.loop.contention_frac >= 0.4
    # What was waiting for a processor is no longer counted as the work itself.
    assert case.loading.loop.model.steps[0].wall_ns < 0.6 * 64e6


def test_a_host_that_was_not_sampled_is_none(tmp_path: Path) -> None:
    assert summarize_host(build_case_run(tmp_path / "run", Plant()).rank(), *ALL) is None
