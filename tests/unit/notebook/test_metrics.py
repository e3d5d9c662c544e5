"""The figures of a run as a tracker takes them: flat, finite numbers that agree with the pages."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

import collector
from collector.format.phases import PHASE_NAMES
from profiler_server.report import build_report
from tests.support.runs import RunPlan, build_run
from tests.support.tables import make_inference


def test_a_run_gives_a_tracker_the_figures_of_its_pages(tmp_path: Path) -> None:
    run = collector.open_run(build_run(tmp_path / "run", RunPlan()))
    found, (rank,) = run.metrics(), build_report(run)["ranks"]
    assert found["stepscope/steps"] == 40.0
    assert found["stepscope/step_seconds"] == pytest.approx(rank["steps"]["duration_ns"]["mean"] / 1e9)
    phases = [found[f"stepscope/phase_seconds/{name}"] for name in PHASE_NAMES]
    assert sum(phases) == pytest.approx(found["stepscope/step_seconds"])
    assert found["stepscope/data_wait_ratio"] == pytest.approx(0.4 / 64.0, rel=0.01)
    # What MLflow refuses in a name, and every tracker in a value.
    assert all(re.fullmatch(r"[\w./ -]+", name) and math.isfinite(value) for name, value in found.items())


def test_of_a_run_that_only_infers_the_batches_are_its_steps(tmp_path: Path) -> None:
    run = collector.open_run(make_inference(build_run(tmp_path / "run", RunPlan())))
    assert run.metrics()["stepscope/steps"] == 40.0


def test_a_run_without_steps_has_no_times(tmp_path: Path) -> None:
    run = collector.open_run(build_run(tmp_path / "run", RunPlan(steps=0)))
    assert run.metrics() == {"stepscope/steps": 0.0}
