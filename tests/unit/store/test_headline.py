"""The run list says the same of a run as its pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector import open_run
from collector.format.steps import summarize_phases, summarize_steps
from profiler_server.store.headline import read_headline
from tests.support.runs import RunPlan, build_run, slow_loader_plan
from tests.support.tables import make_inference


@pytest.mark.parametrize("plan", [RunPlan(), RunPlan(steps=200), slow_loader_plan("read")])
def test_the_run_list_averages_the_steps_that_the_pages_average(tmp_path: Path, plan: RunPlan) -> None:
    run = open_run(build_run(tmp_path / "run", plan))
    steps = run.table("steps")
    spread = summarize_steps(steps).duration_ns
    wait = next(phase.share_frac for phase in summarize_phases(steps) if phase.name == "data_wait")
    assert spread is not None
    headline = read_headline(run)
    assert (headline.steps, headline.step_p50_ns) == (plan.steps, spread.p50)
    assert headline.data_wait_frac == pytest.approx(wait)


def test_batches_are_counted_as_the_steps_of_a_run_that_only_infers(tmp_path: Path) -> None:
    headline = read_headline(open_run(make_inference(build_run(tmp_path / "run", RunPlan(operators=False)))))
    assert (headline.steps, headline.noun) == (40, "batch")
    assert headline.step_p50_ns is not None
    assert headline.data_wait_frac is not None
