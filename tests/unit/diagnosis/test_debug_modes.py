"""What anomaly detection is said to cost: by samples of stacks, by the number of operators, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format import parts
from collector.format.run import Run, open_run
from collector.format.schema import layout
from profiler_server.diagnosis.judging import diagnose
from profiler_server.facts.results import Suggestion
from tests.support.cases import Plant, build_case_run
from tests.support.runs import HEALTHY_STEP_MS, MS
from tests.support.stacks import in_phase, library, own, write_stacks

FORWARD = own("forward", 30, "model.py")
KEEPS = (library("format_stack", "torch/fx/traceback.py"), library("extract", "traceback.py"))


def build(path: Path, operators: bool) -> Path:
    plant = Plant(manifest={"facts": {"anomaly_mode": True}})
    run = build_case_run(path, plant)
    file = layout.table_file(layout.rank_path(run.path, 0), "operators")
    file.unlink(missing_ok=True)
    if operators:
        rows = [
            {
                "step": 11,
                "name": name,
                "type": "other",
                "count": count,
                "total_ns": total_ns,
                "self_ns": total_ns,
                "device_total_ns": 0,
                "device_self_ns": 0,
            }
            for name, count, total_ns in (
                ("autograd::engine::evaluate_function: MulBackward0", 200, 4 * MS),
                ("aten::isnan", 200, 3 * MS),
                ("aten::_is_any_true", 200, 2 * MS),
            )
        ]
        parts.write_table(parts.build_table_from_rows("operators", rows), file)
    return run.path


def find(run: Run) -> Suggestion:
    return next(found for found in diagnose(run, 0).suggestions if found.rule == "debug_modes")


def test_tracebacks_that_were_sampled_are_taken_away_with_a_part_of_the_rest(tmp_path: Path) -> None:
    path = build(tmp_path, operators=False)
    write_stacks(path, [in_phase("forward", 600, FORWARD, *KEEPS), in_phase("forward", 400, FORWARD)])
    found = find(open_run(path))
    assert "60.0 % of the forward (1,000 samples)" in found.measured
    saved_ms = (0.6 + 0.6 * 0.4) * HEALTHY_STEP_MS["forward"]
    assert found.predicted_step_ns == pytest.approx((sum(HEALTHY_STEP_MS.values()) - saved_ms) * MS, rel=0.03)


def test_without_samples_the_range_is_that_of_the_number_of_operators(tmp_path: Path) -> None:
    found = find(open_run(build(tmp_path, operators=True)))
    assert "keeps 200 tracebacks" in found.measured
    assert "looking for NaN takes 5.00 ms" in found.measured
    assert found.predicted_low_ns is not None
    assert found.predicted_high_ns is not None
    whole_ns = sum(HEALTHY_STEP_MS.values()) * MS
    assert found.predicted_low_ns < whole_ns - 18 * MS
    assert whole_ns - 9 * MS < found.predicted_high_ns < whole_ns


def test_what_was_not_seen_is_asked_for_and_not_predicted(tmp_path: Path) -> None:
    found = find(open_run(build(tmp_path, operators=False)))
    assert found.predicted_step_ns is None
    assert "for a range" in found.advice
