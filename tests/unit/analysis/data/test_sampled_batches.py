"""Cheap samples are looked into in some batches only: the processor time of the others is not nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collector import open_run
from collector.estimating.recorded import read_loop
from collector.format.arrays import fill_in_proportion
from profiler_server.analysis.data.batches import read_batches
from profiler_server.diagnosis.measuring import measure_case
from profiler_server.facts.loading import BatchTimes
from tests.support.plants import Plant, build_case_run, slow
from tests.support.row_edits import Row, compute_all


def look_into_some(stages: list[Row]) -> None:
    """All of the work is on a processor, and one batch in ten says so."""
    compute_all(stages)
    for row in stages:
        if row["batch"] is not None and row["batch"] % 10 and row["stage"] != "collate":
            row["cpu_ns"] = None


def read(path: Path, plant: Plant) -> BatchTimes:
    found = read_batches(build_case_run(path / "run", plant).rank(0), 0)
    assert found is not None
    return found


def test_batches_that_were_not_looked_into_compute_as_those_that_were(tmp_path: Path) -> None:
    some, every = (read(tmp_path / str(n), Plant(slow("read"), edit_stages=edit)) for n, edit in enumerate(EDITS))
    assert some.cpu_frac == pytest.approx(every.cpu_frac)
    assert some.stretch == every.stretch == 1.0


def test_the_model_of_the_loop_is_that_of_a_run_that_looked_into_all(tmp_path: Path) -> None:
    checks, needs = [], []
    for number, edit in enumerate(EDITS):
        run = build_case_run(tmp_path / str(number), Plant(slow("read"), edit_stages=edit))
        case = measure_case(run, run.rank(0))
        assert case is not None
        checks.append(case.loading.loop.check)
        needs.append(case.loading.cpu_need)
    assert checks[0] == pytest.approx(checks[1])
    assert needs == pytest.approx([1.0, 1.0])


def test_estimates_and_statistics_extend_what_was_counted(tmp_path: Path) -> None:
    seen = []
    for number, edit in enumerate(EDITS):
        run = build_case_run(tmp_path / str(number), Plant(slow("read"), edit_stages=edit))
        table = open_run(run.path).statistics().table
        seen.append((read_loop(open_run(run.path)).measured, table["cpu_ns"].to_pylist()))
    assert seen[0] == seen[1]


def test_what_is_known_of_no_batch_is_not_made_up() -> None:
    part, whole, known = np.array([4, 0, 0]), np.array([8, 20, 6]), np.array([True, False, False])
    groups = np.array([0, 0, 1])
    assert fill_in_proportion(part, whole, known, groups).tolist() == [4.0, 10.0, 0.0]
    assert fill_in_proportion(part, whole, known, groups, unknown_frac=1.0).tolist() == [4.0, 10.0, 6.0]


EDITS = look_into_some, compute_all
