"""Reports whose ranks others read: the same as by one process, and told how far they are."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from collector.format.run import Run, open_run
from collector.format.schema import layout
from collector.format.schema.errors import RunNotFoundError
from profiler_server.diagnosis.judging import diagnose
from profiler_server.report import Reporting, build_report
from profiler_server.report.brief import write_brief
from profiler_server.report.text import render_text
from profiler_server.web.report_file import render_report
from tests.support import forking
from tests.support.cases import Plant, build_case_run, plan_of
from tests.support.forking import Forked
from tests.support.machines import build_ranks
from tests.support.row_edits import lay_end_to_end, write_rows
from tests.support.runs import MS, build_steps


class Elsewhere:
    """Other processes, as far as tasks and results reach them as bytes."""

    are_here = False
    helpers = 0

    def __init__(self) -> None:
        self.tasks = 0

    def run(
        self, function: Callable[[Any], Any], tasks: Sequence[Any], on_done: Callable[[int], None]
    ) -> Iterator[Any]:
        for done, task in enumerate(tasks, 1):
            self.tasks += 1
            yield pickle.loads(pickle.dumps(function))(pickle.loads(pickle.dumps(task)))
            on_done(done)


def test_ranks_that_other_processes_read_are_reported_as_by_one(tmp_path: Path) -> None:
    run = open_run(build_ranks(tmp_path / "run", 3, slow=1))
    layout.table_file(layout.rank_path(run.path, 2), "steps").write_bytes(b"PAR1 no table")
    assert build_report(run, how=Reporting(Elsewhere())) == build_report(run)


@pytest.mark.parametrize("workers", [None, Elsewhere()])
def test_a_report_says_how_far_it_is(tmp_path: Path, workers: Elsewhere | None) -> None:
    run, shares = open_run(build_ranks(tmp_path / "run", 4, slow=1)), list[float]()
    build_report(run, how=Reporting(workers, shares.append))
    assert len(shares) == 4
    assert shares == sorted(set(shares))
    assert 0 < shares[0] < shares[-1] < 1  # the ranks are still set beside each other


def test_the_file_of_a_report_is_read_by_the_same_workers(tmp_path: Path) -> None:
    run, workers = open_run(build_ranks(tmp_path / "run", 3, slow=1)), Elsewhere()
    assert render_report(run, how=Reporting(workers)) == render_report(run)
    assert workers.tasks == 3


@pytest.mark.parametrize("options", [(), ("--jobs", "2"), ("--html", "out.html")])
def test_a_terminal_sees_a_bar_and_a_pipe_sees_none(tmp_path: Path, options: tuple[str, ...]) -> None:
    build_ranks(tmp_path / "run", 3, slow=1)
    command = [sys.executable, "-m", "profiler_server.cli", "report", "run", "--json", *options]
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    shown = Forked(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    seen = _read_terminal(ours)
    told, _ = shown.communicate(timeout=300)
    assert shown.returncode == 0
    assert b"Reading run" in seen
    piped = forking.run(command, cwd=tmp_path, text=False)
    assert (piped.returncode, piped.stderr) == (0, b"")
    assert piped.stdout == told


def _read_terminal(terminal: int) -> bytes:
    """Return what is written to a terminal until all who could have closed it."""
    found = b""
    with contextlib.suppress(OSError), open(terminal, "rb", buffering=0) as file:
        while more := file.read(65_536):
            found += more
    return found


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
    assert about["change"] == "stepscope report RUN --rank 1"


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
    assert "6 more ranks: stepscope report RUN --rank N" in text
    alike = open_run(build_ranks(tmp_path / "alike", 4))
    assert render_text(build_report(alike), alike).count("\nRank ") == 4
