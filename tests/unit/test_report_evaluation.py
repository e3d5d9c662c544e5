"""The report's text tells the evaluation apart from the training steps."""

from __future__ import annotations

from pathlib import Path

from collector import open_run
from collector.format import parts
from collector.format.schema import layout
from profiler_server.report import build_report
from profiler_server.report.text import render_text
from tests.support.cases import Plant, build_case_run
from tests.support.row_edits import rest_between_epochs
from tests.support.runs import RunPlan, build_run, build_steps


def test_evaluation_is_mentioned_beside_the_training_steps(tmp_path: Path) -> None:
    run = open_run(build_run(tmp_path / "run"))
    assert "evaluation:" not in render_text(build_report(run), run)
    rows = build_steps(RunPlan())
    for row in rows[-3:]:
        row["kind"] = "eval"
    steps = layout.table_file(layout.rank_path(run.path, 0), "steps")
    parts.write_table(parts.build_table_from_rows("steps", rows), steps)
    text = render_text(build_report(run), run)
    assert "evaluation: 3 batches, " in text


def test_the_report_says_what_share_of_the_time_lay_between_epochs(tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", Plant(RunPlan(steps=40), edit=rest_between_epochs(10, 100.0)))
    text = render_text(build_report(run), run)
    assert (
        "held up by time between epochs: 3 times, 300 ms in all (10.5 % of the recorded time), 100 ms the longest"
        in text
    )
