"""A standstill that a job got over: no average covers its step, and it is told once with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.format.rank import RankRun
from collector.format.run import open_run
from collector.format.standstills import Standstill, read_standstills
from collector.format.steps import select_steps, summarize_steps
from collector.hangs.recorded import describe_standstills
from profiler_server.analysis.ranks.ranks import summarize_ranks
from profiler_server.analysis.ranks.stragglers import judge_ranks
from profiler_server.analysis.stacks.stacks import read_stacks
from profiler_server.analysis.steps.outliers import explain_outlier, list_outliers
from profiler_server.diagnosis.judging import diagnose
from profiler_server.facts.job import Alike
from profiler_server.report.brief import write_brief
from profiler_server.report.building import build_report
from profiler_server.report.text import render_text
from profiler_server.store.redaction import redact
from tests.support.live import edit_rank
from tests.support.ranks_page import show_ranks
from tests.support.runs import MS, RunPlan, build_run, build_steps
from tests.support.stacks import in_phase, own
from tests.support.tables import write_rows

S = 10**9
ENDED = 1_800_000_000 * S
STEP_MS = {"data_wait": 10.0, "forward": 30.0, "backward": 30.0, "communication": 20.0, "optimizer": 10.0}
SENTENCE = (
    "At step 31 the job stood still for 90 s: rank 1 after parameter update, at hold (train.py:7); 1 rank waited for it. "
    "No average covers that."
)


def tell(step: int, **more: Any) -> dict[str, Any]:
    place = {"phase": "", "after": "optimizer", "stack": "hold (train.py:7)", "missing": [1]}
    return {"step": step, "for_ns": 90 * S, "ended_unix_ns": ENDED, **place, **more}


def lengthen(run: Path, rank: int, step: int, phase: str, by_ms: float) -> None:
    rows = build_steps(RunPlan(steps=60, phases_ms=STEP_MS))
    rows[step - 1][f"{phase}_ns"] += int(by_ms * MS)
    rows[step - 1]["duration_ns"] += int(by_ms * MS)
    for row, before in zip(rows[1:], rows[:-1], strict=True):
        row["start_ns"] = before["start_ns"] + before["duration_ns"]
    write_rows(run, "steps", rows, rank)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Two ranks: rank 1 slept 90 s at the end of its step 31, and rank 0 waited for it in its step 32."""
    run = build_run(tmp_path / "job", RunPlan(steps=60, ranks=2, phases_ms=STEP_MS, operators=False))
    lengthen(run, 0, 32, "communication", 90_000)
    lengthen(run, 1, 31, "tail", 90_000)
    edit_rank(run, 0, facts={"standstills": [tell(32, phase="communication", stack="backward (train.py:5)")]})
    edit_rank(run, 1, facts={"standstills": [tell(31)]})
    return run


def test_no_average_covers_the_step_in_which_the_job_stood_still(job: Path) -> None:
    for rank, step in ((0, 32), (1, 31)):
        table = open_run(job).rank(rank).table("steps")
        told = {group.reason: group.steps.tolist() for group in select_steps(table).left_out}
        assert told["standstill"] == [step]
        times = summarize_steps(table).duration_ns
        assert times is not None
        assert times.max < 110 * MS


@pytest.mark.parametrize("noted", [0, 1])
def test_a_standstill_that_one_rank_noted_is_in_the_average_of_no_other(job: Path, noted: int) -> None:
    """Close to the limit the ranks differ: the one that looked a moment earlier had not stood for long enough."""
    edit_rank(job, 1 - noted, facts={})
    for rank, step in ((0, 32), (1, 31)):
        table = open_run(job).rank(rank).table("steps")
        assert {group.reason: group.steps.tolist() for group in select_steps(table).left_out}["standstill"] == [step]
    assert max(rank.step_ns for rank in summarize_ranks(open_run(job))) < 110 * MS


def test_long_steps_elsewhere_are_not_left_out_for_a_standstill_of_another_rank(job: Path) -> None:
    edit_rank(job, 0, facts={})
    lengthen(job, 0, 50, "communication", 90_000)
    left_out = select_steps(open_run(job).rank(0).table("steps")).left_out
    assert [group.reason for group in left_out if group.reason == "standstill"] == []


def test_functions_that_ran_while_the_job_stood_still_are_not_those_of_a_step(job: Path) -> None:
    steps = RankRun(job, 1).table("steps")
    before, stood = (steps["start_ns"][step - 1].as_py() for step in (20, 31))
    usual, hold = in_phase("tail", 40, own("tidy", 5)), in_phase("tail", 4_000, own("hold", 7))
    write_rows(job, "stacks", [{**usual, "start_ns": before}, {**hold, "start_ns": stood + 50 * MS}], 1)
    found = read_stacks(RankRun(job, 1))
    assert found is not None
    assert found.phase("tail").samples == 40


def test_a_long_step_that_nobody_told_of_stays_in_the_average(job: Path) -> None:
    edit_rank(job, 0, facts={})
    edit_rank(job, 1, facts={})
    times = summarize_steps(RankRun(job, 0).table("steps")).duration_ns
    assert times is not None
    assert times.max > 90 * S


def test_a_step_that_is_shorter_than_what_was_told_is_another_one(job: Path) -> None:
    edit_rank(job, 0, facts={"standstills": [tell(33)]})
    edit_rank(job, 1, facts={})
    assert not select_steps(RankRun(job, 0).table("steps")).stood.any()


def test_it_blames_no_rank_for_the_usual_step(job: Path) -> None:
    judged = judge_ranks(summarize_ranks(open_run(job)))
    assert isinstance(judged, Alike)
    assert judged.comparison.latest.gain_ns < 5 * MS


def test_it_is_told_on_overall_on_ranks_and_in_the_report(job: Path) -> None:
    run = open_run(job)
    assert diagnose(run, 0).sentence.endswith(f" {SENTENCE}")
    compared = show_ranks(run).comparison
    assert compared is not None
    assert compared.detail.endswith(SENTENCE)
    assert render_text(build_report(run), run).count(SENTENCE) == 1
    assert write_brief(run)[-1] == SENTENCE


def test_the_slow_step_says_that_the_job_stood_still(job: Path) -> None:
    rank = open_run(job).rank(1)
    (slow, *_) = list_outliers(rank.table("steps")).shown
    assert explain_outlier(slow) == "Tail +90.0 s; the job stood still, not in the figures"


def test_a_redacted_run_does_not_tell_the_function(job: Path) -> None:
    run = redact(open_run(job))
    assert "hold" not in diagnose(run, 0).sentence
    assert "stood still for 90 s" in diagnose(run, 0).sentence


def test_several_are_summed_and_the_longest_has_its_place() -> None:
    other = Standstill(0, 50, 40 * S, ENDED + 500 * S, phase="forward")
    text = describe_standstills([other, Standstill(0, 31, 90 * S, ENDED, phase="forward", stack="wait (a.py:1)")])
    assert text == (
        "At step 31 the job stood still for 90 s: rank 0 in forward, at wait (a.py:1). It stood still 2 times, for 130 s in "
        "all. No average covers that."
    )
    assert describe_standstills([]) == ""


@pytest.mark.parametrize("told", [None, 7, [7], [{}], [{"step": "9", "for_ns": 1, "ended_unix_ns": 1}], [tell(-1)]])
def test_what_is_told_wrongly_is_no_standstill(told: Any) -> None:
    assert read_standstills(0, {"standstills": told}) == ()
