"""Advice as a value in Python: the same as on the pages, as text and as HTML that a notebook can trust."""

from __future__ import annotations

from pathlib import Path

import pytest

import collector
from collector.notebook.advice import Advice
from profiler_server.diagnosis.judging import diagnose
from profiler_server.report import build_report
from profiler_server.report.text import render_text
from tests.support.cases import PLANTED, Plant, build_case_run
from tests.support.runs import RunPlan, build_run, slow_loader_plan


def test_a_run_gives_the_advice_of_its_pages(tmp_path: Path) -> None:
    run = collector.open_run(build_run(tmp_path / "slow", slow_loader_plan("transform")))
    advice, shown = run.suggestions(), diagnose(run, 0)
    assert advice.verdict == shown.sentence
    assert [(entry.rule, entry.predicted_step_ns, entry.change) for entry in advice] == [
        (entry.rule, entry.predicted_step_ns, entry.change) for entry in shown.suggestions
    ]
    assert len(advice) == len(shown.suggestions) > 0
    text = str(advice)
    assert text.startswith(shown.sentence)
    assert all(f"{at}. {entry.title}. {entry.states}: " in text for at, entry in enumerate(advice, 1))
    assert {entry.states for entry in advice} > {"Predicted step"}


def test_that_no_step_time_is_predicted_is_said_once(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", PLANTED["threads_over_cores"])
    advice = run.suggestions()
    unpredicted = [entry for entry in advice if entry.predicted_step_ns is None]
    assert unpredicted
    for text in (str(advice), advice._repr_html_(), render_text(build_report(run), run)):
        assert text.count("No step time is predicted") == len(unpredicted)


def test_a_healthy_run_says_why_it_gives_none(tmp_path: Path) -> None:
    advice = collector.open_run(build_run(tmp_path / "healthy", RunPlan(steps=100))).suggestions()
    assert len(advice) == 0
    assert advice.silence
    assert str(advice).endswith(advice.silence)
    assert advice.silence in advice._repr_html_()


def test_names_of_the_user_are_escaped_in_a_notebook(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    run = build_case_run(tmp_path / "evil", Plant(slow_loader_plan("read"), loader={"dataset": evil}))
    advice: Advice = run.suggestions()
    assert any(evil in entry.change for entry in advice)
    assert "<script" not in advice._repr_html_()
    assert "&lt;script&gt;" in advice._repr_html_()


def test_a_rank_that_is_not_there_is_named(tmp_path: Path) -> None:
    run = collector.open_run(build_run(tmp_path / "one", RunPlan(steps=3)))
    with pytest.raises(collector.RunNotFoundError, match="has no rank 7"):
        run.suggestions(7)
