"""Every rule speaks in its planted case, none in a healthy one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from collector.format.run import Run
from collector.format.steps import summarize_steps
from profiler_server.diagnosis.judging import diagnose, find_rules
from profiler_server.facts.results import Diagnosis
from profiler_server.format import format_duration
from tests.support.cases import HEALTHY, PLANTED, build_case_run
from tests.support.diagnosing import Golden, measure, write_out
from tests.support.row_edits import fetch_in_groups, lay_end_to_end, write_rows
from tests.support.runs import MS, build_steps
from tests.support.varying import write_findings
from tests.support.window_cases import OF_WINDOWS, WINDOW_CASES

OF_TRACES = ("uneven_stages", "launch_bound", "tf32_off", "amp_off", "clock_throttle", *OF_WINDOWS, *WINDOW_CASES)
"""Rules that need a trace: see `test_device`, `test_window_rules` and `tests/golden/test_pipelines`."""


PART = re.compile(r"(\d[\d.,]* (?:ns|µs|ms|s)) of (\d[\d.,]* (?:ns|µs|ms|s))\b")
"""A part of a step, which is of the mean step wherever it is told."""
BEHIND: Mapping[str, Callable[[int, int], str]] = {
    "fixed_straggler": lambda rank, step: ("communication", "backward")[rank],
    "slow_rank_loader": lambda rank, step: ("communication", "data_wait")[rank],
    "rotating_straggler": lambda rank, step: "backward" if step % 2 == rank else "communication",
}
"""The phase that takes longer: rank 1 is behind, or each by turns, and the other is held for it."""


def judge_plant(path: Path, rule: str) -> tuple[Run, Diagnosis]:
    run = build_case_run(path, PLANTED[rule])
    for rank in (0, 1) if rule in BEHIND else ():
        rows = build_steps(PLANTED[rule].plan)
        for row in rows:
            row[f"{BEHIND[rule](rank, row['step'])}_ns"] += (60 if rule == "rotating_straggler" else 20) * MS
        lay_end_to_end(rows)
        write_rows(run.rank(rank).folder, "steps", rows)
    if rule in (*BEHIND, "exposed_all_reduce"):
        assert run.manifest.world_size == 2
    return run, diagnose(run, 0)


def test_every_rule_has_a_planted_case() -> None:
    assert {rule.id for rule in find_rules().rules} == {*PLANTED, *OF_TRACES}


@pytest.mark.parametrize("rule", PLANTED)
def test_rule_speaks_in_its_case(rule: str, tmp_path: Path, golden: Golden) -> None:
    run, diagnosis = judge_plant(tmp_path / "run", rule)
    golden(f"rules/{rule}", write_out(diagnosis, rule))
    golden(f"facts/{rule}", write_findings(measure(run), rule))
    (said,) = (entry for entry in diagnosis.suggestions if entry.rule == rule)
    texts = [
        diagnosis.sentence,
        *(text for entry in diagnosis.suggestions for text in (entry.measured, entry.threshold)),
    ]
    times = summarize_steps(run.rank().table("steps")).duration_ns
    assert times is not None
    assert {base for text in texts for _, base in PART.findall(text)} <= {format_duration(times.mean)}
    assert all((said.title, said.measured, said.threshold, said.advice, said.change, said.evidence))
    if said.predicted_step_ns is not None:
        assert said.predicted_low_ns is not None
        assert said.predicted_high_ns is not None
        assert 0 <= said.predicted_low_ns <= said.predicted_step_ns <= said.predicted_high_ns


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_run_gets_no_advice(name: str, tmp_path: Path) -> None:
    diagnosis = diagnose(build_case_run(tmp_path / "run", HEALTHY[name]), 0)
    assert [entry.rule for entry in diagnosis.suggestions] == []
    assert diagnosis.bound_by.kind == "compute"


@pytest.mark.parametrize(
    ("cpu_frac", "where"), [(0.1, "thread with a queue"), (0.9, "in a worker process: it computes")]
)
def test_a_reader_beside_the_training_saves_no_more_than_the_wait(cpu_frac: float, where: str, tmp_path: Path) -> None:
    plant = PLANTED["watched_input"]
    plant = dataclasses.replace(plant, loader={**plant.loader, "cpu_frac": cpu_frac})
    run = build_case_run(tmp_path / "run", plant)
    (said,) = [entry for entry in diagnose(run, 0).suggestions if entry.rule == "watched_input"]
    assert where in said.advice
    steps = run.rank(0).table("steps").to_pandas()
    own_ns = float((steps["duration_ns"] - steps["data_wait_ns"]).mean())
    assert said.predicted_step_ns is not None
    assert said.predicted_low_ns is not None
    assert own_ns <= said.predicted_low_ns <= said.predicted_step_ns < steps["duration_ns"].mean()


def test_a_loop_that_fetches_groups_gets_the_prediction_of_one_that_does_not(tmp_path: Path) -> None:
    plant = PLANTED["too_few_workers"]
    found = []
    for name, edit in (("plain", None), ("groups", fetch_in_groups)):
        diagnosis = diagnose(build_case_run(tmp_path / name, dataclasses.replace(plant, edit=edit)), 0)
        found += [entry.predicted_step_ns for entry in diagnosis.suggestions if entry.rule == "too_few_workers"]
    plain, groups = found
    assert plain is not None
    assert groups == pytest.approx(plain, rel=0.1)
