"""The report of one rank of several: its own verdict and suggestions, in every form that a report has."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from collector.format.run import Run, open_run
from collector.format.schema.errors import RunNotFoundError
from profiler_server.diagnosis.judging import diagnose
from profiler_server.report import build_report
from profiler_server.report.brief import write_brief
from profiler_server.report.text import render_text
from profiler_server.web.report_file import render_report
from tests.support.cases import Plant, build_case_run, plan_of
from tests.support.machines import build_ranks
from tests.support.row_edits import lay_end_to_end, write_rows
from tests.support.runs import MS, build_steps


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Two ranks, of which the second waits for its data, and the first for it."""
    plan = dataclasses.replace(plan_of(), ranks=2)
    made = build_case_run(tmp_path / "run", Plant(plan))
    for rank, phase in enumerate(("communication", "data_wait")):
        rows = build_steps(plan)
        for row in rows:
            row[f"{phase}_ns"] += 40 * MS
        lay_end_to_end(rows)
        write_rows(made.rank(rank).folder, "steps", rows)
    return open_run(tmp_path / "run")


def test_the_advice_about_a_slow_rank_names_a_command_that_shows_its_suggestions(run: Run) -> None:
    (about,) = [entry for entry in build_report(run)["suggestions"] if entry["rule"] == "slow_rank_loader"]
    assert about["change"] == "profiler-server report RUN --rank 1"


def test_each_form_of_a_report_is_of_the_rank_that_was_asked_for(run: Run) -> None:
    first, second = build_report(run, rank=0), build_report(run, rank=1)
    assert [rank["rank"] for rank in second["ranks"]] == [1]
    assert first["bound_by"]["kind"] != second["bound_by"]["kind"]
    verdict = diagnose(run, 1).sentence
    assert verdict != diagnose(run, 0).sentence
    assert verdict in render_text(second, run, 1)
    assert "Rank 0:" not in render_text(second, run, 1)
    assert write_brief(run, 1) != write_brief(run, 0)
    assert verdict.split(".")[0] in render_report(run, rank=1)


def test_a_rank_that_is_not_there_is_named_with_those_that_are(run: Run) -> None:
    with pytest.raises(RunNotFoundError, match="no rank 7; it has: 0, 1"):
        build_report(run, rank=7)


def test_of_many_ranks_those_are_described_that_matter(tmp_path: Path) -> None:
    run = open_run(build_ranks(tmp_path / "run", 8, slow=5))
    text = render_text(build_report(run), run)
    described = re.findall(r"^(Rank \d+):", text, re.MULTILINE)
    assert described == ["Rank 0", "Rank 5"]
    assert "6 more ranks: profiler-server report RUN --rank N" in text
    alike = open_run(build_ranks(tmp_path / "alike", 4))
    assert render_text(build_report(alike), alike).count("\nRank ") == 4
