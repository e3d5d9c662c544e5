"""A job that was started again: its attempts stand on each other's pages, in the report and in the list of runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.format.run import open_run
from collector.format.schema import layout
from profiler_server.cli import main
from profiler_server.report.brief import write_brief
from profiler_server.report.building import build_report
from profiler_server.report.text import render_text
from profiler_server.store.catalog import Catalog
from profiler_server.store.redaction import redact
from profiler_server.web.frontend import Templates
from profiler_server.web.report_file import render_report
from tests.support.asking import Asker
from tests.support.live import edit_rank, edit_run
from tests.support.runs import RunPlan, build_run, build_steps
from tests.support.tables import write_rows

FIRST = "earlier/20261123-102021"
LOST = "DistNetworkError: connection refused"
TOLD = "attempt 1 ended after 40 steps: rank 0, RuntimeError: planted"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """The second attempt of a job, which ended well after the first was ended by an exception of rank 0."""
    path = build_run(tmp_path / "runs" / "job", RunPlan(ranks=2, operators=False))
    first = build_run(path / FIRST, RunPlan(ranks=2, operators=False))
    for rank, by in enumerate(("RuntimeError: planted", LOST)):
        edit_rank(first, rank, facts={"ended_by": by})
    edit_run(first, name="job", job_id="id")
    edit_run(path, job_id="id", attempt=2, created_unix_ns=open_run(path).manifest.created_unix_ns + 1)
    return path


def test_the_report_names_the_attempts_and_where_the_one_that_failed_is_reported(job: Path) -> None:
    report = build_report(open_run(job))
    text = render_text(report, open_run(job))
    command = f"Attempt 1: stepscope report {job / FIRST}"
    assert f"\n\nAttempt 2 of 2; {TOLD}.\n{command}\nUseful time of the job: " in text
    assert report["job_time"]["sentence"] in text
    assert text.split("\n\n")[1].startswith("Compute-bound: ")
    found = report["attempts"]
    assert [(one["attempt"], one["path"], one["is_this"]) for one in found] == [
        (1, str(job / FIRST), False),
        (2, str(job), True),
    ]
    assert (found[0]["end"]["kind"], found[0]["end"]["error"], found[1]["end"]) == (
        "raised",
        "RuntimeError: planted",
        None,
    )
    brief = write_brief(open_run(job))
    assert brief[0].startswith("Compute-bound: ")
    assert brief[-2:] == [f"Attempt 2 of 2; {TOLD}.", command]


def test_an_attempt_without_a_step_says_first_how_the_one_before_it_ended(
    job: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed to connect; so nothing but the first attempt tells why the job failed."""
    build_run(job, RunPlan(ranks=2, operators=False, steps=0))
    edit_run(job, job_id="id", attempt=2, created_unix_ns=open_run(job).manifest.created_unix_ns + 1)
    for rank in range(2):
        edit_rank(job, rank, facts={"ended_by": LOST})
        for table in ("steps", "phases"):
            layout.table_file(layout.rank_path(job, rank), table).unlink(missing_ok=True)
    first = f"Attempt 2 of 2; {TOLD}. In this attempt: Ranks 0, 1 failed in communication before the first step"
    assert write_brief(open_run(job))[0].startswith(first)
    monkeypatch.setattr("sys.argv", ["stepscope", "report", str(job)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    said = capsys.readouterr().out
    assert said.split("\n\n")[1].startswith(first)
    assert f"Attempt 1: stepscope report {job / FIRST}" in said
    assert Asker(job.parent).ask("/runs/job/").text.count(TOLD[len("attempt 1 ") :]) >= 2


@pytest.mark.parametrize("rows", [0, 1])
def test_an_attempt_that_died_before_its_first_step_says_why_and_offers_nothing_to_record_with(
    job: Path, rows: int
) -> None:
    """There may be a row of the time before the first step, or none."""
    start = {**build_steps(RunPlan(1))[0], "kind": "startup", "step": 0, "optimizer_steps": 0}
    for rank in range(2):
        write_rows(job / FIRST, "steps", [start][:rows], rank)
    asker = Asker(job.parent)
    for page in ("", "steps"):
        assert "from stepscope import" not in asker.ask(f"/runs/job/{FIRST}/{page}").text
    overall = " ".join(asker.ask(f"/runs/job/{FIRST}/").text.split())
    assert "No steps yet" not in overall
    assert "The job was ended before the first step by RuntimeError: planted (rank 0)" in overall


def test_overall_says_the_useful_time_of_a_job_with_several_attempts_only(job: Path) -> None:
    said = "Useful time of the job: between "
    for path in (f"/runs/job/{FIRST}/", "/runs/job/"):
        assert said in Asker(job.parent).ask(path).text
    alone = build_run(job.parent.parent / "one" / "run")
    assert said not in Asker(alone.parent).ask("/runs/run/").text
    assert build_report(open_run(alone))["job_time"] is None


def test_overall_leads_from_one_attempt_to_the_other(job: Path) -> None:
    asker = Asker(job.parent)
    second, first = (" ".join(asker.ask(f"/runs/{path}/").text.split()) for path in ("job", f"job/{FIRST}"))
    assert "<b>Attempt 2 of 2</b>" in second
    assert f'<a href="/runs/job/{FIRST}/">Attempt 1</a> {TOLD[len("attempt 1 ") :]}' in second
    assert "<b>Attempt 1 of 2</b>" in first
    assert '<a href="/runs/job/">Attempt 2</a>' in first
    assert "The job was ended after 40 steps by RuntimeError: planted (rank 0)" in first
    assert "<b>Attempt" not in Asker(build_run(job.parent.parent / "one" / "run").parent).ask("/runs/run/").text


def test_a_run_that_is_the_base_directory_itself_leads_to_its_attempts(job: Path) -> None:
    asker = Asker(job)
    assert f'<a href="/runs/{FIRST}/">Attempt 1</a>' in asker.ask("/runs/@base/").text
    assert "/runs/@base/" in asker.ask(f"/runs/{FIRST}/").text or "/runs/%40base/" in asker.ask(f"/runs/{FIRST}/").text


def test_the_list_of_runs_shows_attempts_and_compares_none_with_the_one_before_it(job: Path) -> None:
    text = " ".join(Asker(job.parent).ask("/").text.split())
    assert "attempt 2 of 2" in text
    assert "attempt 1 of 2" in text
    entry = Catalog(job.parent).list_runs().find("job")
    assert entry is not None
    assert entry.previous_id is None


def test_an_earlier_attempt_is_opened_by_its_path_and_by_its_id(job: Path) -> None:
    first = open_run(job / FIRST)
    assert open_run(f"job/{FIRST}", base_dir=job.parent).path == first.path
    assert first.manifest.attempt == 1
    # The name is that of the run that was set aside for the next attempt: the last one is meant.
    deeper = job.parent.parent
    assert open_run("job", base_dir=deeper).path == job


def test_a_redacted_run_names_neither_the_job_nor_what_its_script_raised(job: Path) -> None:
    hidden = redact(open_run(job))
    assert hidden.manifest.job_id == ""
    first, second = (one["end"] for one in build_report(hidden)["attempts"])
    assert (first["kind"], first["ranks"], first["error"], second) == ("raised", [0], "RuntimeError: message 1", None)


def test_a_redacted_report_of_any_attempt_is_given_no_path_of_the_others(
    job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Templates, "render", lambda self, name, **values: str(values["report"]))
    for path in (job, job / FIRST):
        given = render_report(open_run(path), redact=True)
        assert f"RUN/{FIRST}" in given
        assert str(job.parent) not in given


def test_a_damaged_manifest_is_said_to_be_damaged_and_not_that_the_run_crashed(tmp_path: Path) -> None:
    path = build_run(tmp_path / "run", RunPlan(operators=False))
    layout.rank_file(path, 0).write_text(json.dumps({"rank": 0}), encoding="utf-8")
    asker = Asker(tmp_path)
    text = " ".join(asker.ask("/runs/run/").text.split())
    assert "A file of this run is damaged" in text
    assert "lacks" in text
    assert "ended before it was analysed" not in text
    assert "Crashed</span>" not in text
    listed = asker.ask("/").text
    assert "Damaged</span>" in listed
    assert "Crashed</span>" not in listed
