"""A run with the probe: the measured step stands beside the estimate, and predictions rest on it where they can."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import Run
from collector.format.steps import select_steps
from profiler_server.diagnosis.judging import diagnose
from profiler_server.facts.results import Suggestion
from profiler_server.report import build_report
from profiler_server.report.text import render_text
from tests.support.cases import Plant, build_case_run, slow, step_of
from tests.support.data_page import show_interval
from tests.support.diagnosing import measure
from tests.support.overall_page import show
from tests.support.row_edits import Row
from tests.support.runs import MS

LATE = dataclasses.replace(
    slow("read"), workers=1, read_ms=100.0, transform_ms=10.0, collate_ms=2.0, phases_ms=step_of(data_wait=50.0)
)
"""One worker is late; two would do."""


def noted(step_ms: float, spread_ms: float = 0.2) -> dict[str, Any]:
    steps = [round((step_ms + spread_ms * (number % 2 - 0.5)) * MS) for number in range(12)]
    return {"probe": {"rounds": [{"first_step": 31, "step_ns": steps, "waited_ns": 5}], "cost_ns": 410 * MS}}


def record(path: Path, **facts: Any) -> Run:
    return build_case_run(path, Plant(LATE, manifest={"facts": facts}))


def find(run: Run, rule: str) -> Suggestion:
    return next(entry for entry in diagnose(run, 0).suggestions if entry.rule == rule)


def measure_own(run: Run) -> float:
    """Return the mean step less its data wait, in ms."""
    case = measure(run)
    return (case.steps.mean_ns - case.steps.phases_ns["data_wait"]) / MS


def test_the_pages_and_the_report_show_it_beside_the_estimate(tmp_path: Path) -> None:
    run = record(tmp_path / "run", **noted(61.4))
    for text in (
        next(fact.value for fact in show(run.path).facts if fact.label == "Step with its batch ready"),
        next(entry.text for entry in show_interval(run.path).readings if entry.title == "Step with its batch ready"),
    ):
        assert "measured by the probe over 12 steps" in text
        assert "61.4 ms" in text
        assert "cost 410 ms" in text
        assert "less its data wait is" in text
    found = build_report(run)["ranks"][0]["probe"]
    assert (found["step_ns"], found["steps"], found["cost_ns"]) == (round(61.4 * MS), 12, 410 * MS)
    assert "step with its batch ready: 61.4 ms" in render_text(build_report(run), run)


def test_without_a_probe_no_page_speaks_of_one(tmp_path: Path) -> None:
    run = record(tmp_path / "run")
    assert all("probe" not in f"{fact.label} {fact.value}" for fact in show(run.path).facts)
    assert all("probe" not in entry.text for entry in show_interval(run.path).readings)
    assert build_report(run)["ranks"][0]["probe"] is None


def test_a_prediction_after_which_nothing_waits_is_the_measured_step(tmp_path: Path) -> None:
    plain = record(tmp_path / "plain")
    step_ms = 1.1 * measure_own(plain)
    before = find(plain, "too_few_workers")
    after = find(record(tmp_path / "probed", **noted(step_ms)), "too_few_workers")
    assert after.predicted_step_ns == pytest.approx(step_ms * MS, rel=0.01)
    assert (after.predicted_step_ns or 0.0) > (before.predicted_step_ns or 0.0)
    assert "was measured by the probe" in after.advice
    assert "by the probe" not in before.advice


def test_its_range_is_no_wider_than_without(tmp_path: Path) -> None:
    plain = record(tmp_path / "plain")
    probed = record(tmp_path / "probed", **noted(1.02 * measure_own(plain)))
    widths = [
        (entry.predicted_high_ns or 0.0) - (entry.predicted_low_ns or 0.0)
        for entry in (find(run, "too_few_workers") for run in (plain, probed))
    ]
    assert widths[1] <= widths[0]


def test_no_change_to_loading_is_promised_a_gain_that_the_probe_did_not_see(tmp_path: Path) -> None:
    """With their batches ready the steps took as long as ever: what is waited for then is not the loader."""
    plain = diagnose(record(tmp_path / "plain"), 0).suggestions
    mean_ms = measure_own(record(tmp_path / "own")) + 50.0
    probed = diagnose(record(tmp_path / "probed", **noted(mean_ms)), 0).suggestions
    assert "too_few_workers" in [entry.rule for entry in plain if entry.predicted_step_ns is not None]
    assert "too_few_workers" not in [entry.rule for entry in probed if entry.predicted_step_ns is not None]


def test_steps_of_the_probe_are_in_no_figure(tmp_path: Path) -> None:
    """A tenth of the steps is half as long because the probe had made their batches: the mean is that of the others."""

    def shorten(steps: list[Row]) -> None:
        for row in steps:
            row["probed"] = 60 <= row["step"] < 70
            if row["probed"]:
                row["data_wait_ns"] = 0

    with_probe = build_case_run(tmp_path / "probed", Plant(slow("read"), edit=shorten))
    without = build_case_run(tmp_path / "plain", Plant(slow("read")))
    means = []
    for run in (with_probe, without):
        case = measure(run)
        means.append((case.steps.mean_ns, case.steps.phases_ns["data_wait"]))
    assert means[0][1] > 0
    assert means[0] == pytest.approx(means[1], rel=0.02)
    selection = select_steps(with_probe.table("steps"))
    assert [(group.reason, len(group.steps)) for group in selection.left_out if group.reason == "probe"] == [
        ("probe", 10)
    ]


def test_a_choice_of_probed_steps_alone_is_averaged(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", Plant(slow("read")))
    rows = run.table("steps").to_pylist()
    table = run.table("steps")
    probed = table.set_column(table.column_names.index("probed"), "probed", [[row["kind"] == "train" for row in rows]])
    selection = select_steps(probed)
    assert selection.kept.any()
