"""Workers that keep up on processors that the step has to queue for."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from profiler_server.diagnosis.judging import diagnose
from profiler_server.facts.results import Diagnosis
from tests.support.cases import A100, PLANTED, Plant, build_case_run, plan_of
from tests.support.host_cases import CROWDED, host_samples, open_files
from tests.support.row_edits import Row, compute_all
from tests.support.runs import MS
from tests.support.stacks import in_phase, in_stage, own, write_stacks

RULE = "workers_take_processors"
PLANT = PLANTED[RULE]


def rules_of(diagnosis: Diagnosis) -> list[str]:
    return [entry.rule for entry in diagnosis.suggestions]


def test_the_work_of_a_sample_is_named_and_its_absence_predicted(tmp_path: Path) -> None:
    def edit(stages: list[Row]) -> None:
        compute_all(stages)
        open_files(32 * 32, 8.0, 640)(stages)

    run = build_case_run(tmp_path / "run", dataclasses.replace(PLANT, edit_stages=edit))
    item = own("Fields.__getitem__", 93, "data.py")
    write_stacks(
        tmp_path / "run",
        [in_phase("forward", 100, own("Net.forward", 7)), in_stage("read", 90, item, own("read_field", 46))],
    )
    (said,) = diagnose(run, 0).suggestions
    assert said.rule == RULE
    assert said.title == "The workers take processors that the step needs: read_field()"
    assert "queues for one 20.0 % of its time" in said.measured
    assert "reading" in said.measured
    assert "files of 640 B each" in said.measured
    step_ns = run.rank(0).table("steps").to_pandas()["duration_ns"].mean()
    assert said.predicted_low_ns is not None
    assert said.predicted_step_ns is not None
    waited_ns = 0.5 * MS  # goes with the queueing, and nothing else
    assert 0.8 * step_ns - waited_ns <= said.predicted_low_ns <= said.predicted_step_ns < step_ns


def test_the_rule_says_what_it_lacks_where_nobody_tells_of_queues(tmp_path: Path) -> None:
    told = [row for row in CROWDED if row["metric"] != "run_queue_frac"]
    diagnosis = diagnose(build_case_run(tmp_path / "run", dataclasses.replace(PLANT, tables={"resources": told})), 0)
    assert RULE not in rules_of(diagnosis)
    assert RULE in [entry.rule for entry in diagnosis.abstained]


@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(dataclasses.replace(PLANT, tables={}), id="nothing was sampled"),
        pytest.param(dataclasses.replace(PLANT, plan=plan_of(data_wait=30.0)), id="batches are late"),
        pytest.param(dataclasses.replace(PLANT, manifest={"devices": (A100,)}), id="the step runs on a device"),
        pytest.param(
            dataclasses.replace(
                PLANT,
                tables={
                    "resources": host_samples(
                        process__cpu_cores=0.5,
                        process__run_queue_frac=0.2,
                        worker_0__cpu_cores=0.1,
                        system__cpu_cores=2.0,
                    )
                },
            ),
            id="other programs have them",
        ),
    ],
)
def test_the_rule_is_silent_where_workers_are_not_to_blame(plant: Plant, tmp_path: Path) -> None:
    diagnosis = diagnose(build_case_run(tmp_path / "run", plant), 0)
    assert RULE not in [*rules_of(diagnosis), *(entry.rule for entry in diagnosis.abstained)]
