"""A later run that took an earlier one's advice: what its pages, the comparison and the command say of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from collector.format.run import open_run
from collector.format.schema import layout
from profiler_server.diagnosis.judging import diagnose
from profiler_server.report import Reporting
from profiler_server.report.brief import measure_step
from profiler_server.store.catalog import find_earlier_beside
from profiler_server.store.ledger import NAME, Ledger, LedgerEntry
from profiler_server.store.redaction import redact
from profiler_server.web import verdicts
from profiler_server.web.report_file import render_report
from tests.support.asking import Asker, read_words
from tests.support.cases import Plant, build_case_run
from tests.support.commands import run_command
from tests.support.live import edit_run
from tests.support.must import must
from tests.support.report_shape import check_report
from tests.support.runs import HEALTHY_STEP_MS, slow_loader_plan
from tests.support.waiting import wait_for
from tests.unit.diagnosis.test_tried import entry, write_trials

HOST = {"usable_cores": 8.0, "cpu_count": 8}
SLOW = dataclasses.replace(slow_loader_plan("read"), steps=100)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    before = build_case_run(tmp_path / "fit-1", Plant(SLOW, manifest=HOST))
    workers = diagnose(before, 0).suggestions[0].settings["num_workers"]
    fed = dataclasses.replace(SLOW, workers=workers, phases_ms={**HEALTHY_STEP_MS, "data_wait": 1.0})
    build_case_run(tmp_path / "fit-2", Plant(fed, manifest=HOST))
    build_case_run(tmp_path / "other", Plant(fed, manifest=HOST))
    for number, name in enumerate(("fit-1", "fit-2", "other")):
        edit_run(tmp_path / name, created_unix_ns=number)
    return tmp_path


def wait_for_words(asker: Asker, address: str, words: str) -> str:
    return wait_for(lambda: text if words in (text := asker.ask(address).text) else "")


def test_the_next_run_of_a_script_says_what_the_advice_came_to(base: Path) -> None:
    asker = Asker(base)
    text = wait_for_words(asker, "/runs/fit-2/", "was taken")
    assert "as predicted" in text
    assert 'href="/compare?a=fit-1&amp;b=fit-2"' in text
    # From then on the rule's own card says how often it was right here.
    assert "in 1 of 1 case; 1 lay in the range" in asker.ask("/runs/fit-1/").text
    assert "in 1 of 1 case" in Asker(base).ask("/runs/fit-1/").text


def test_a_run_names_its_baseline_itself(base: Path) -> None:
    asker = Asker(base)
    assert "was taken" not in asker.ask("/runs/other/").text
    edit_run(base / "other", options={"baseline": str(base / "fit-1")})
    wait_for_words(Asker(base), "/runs/other/", "was taken")
    # The base directory was moved, or is mounted elsewhere: the name is left.
    edit_run(base / "other", options={"baseline": "/somewhere/else/fit-1"})
    wait_for_words(Asker(base), "/runs/other/", "was taken")


@pytest.mark.parametrize("named", ["/etc", "../../etc/passwd", "nowhere", "other", 7, "\x00", "x" * 5000])
def test_a_baseline_that_is_none_is_left_out(base: Path, named: object) -> None:
    edit_run(base / "other", options={"baseline": named})
    answer = Asker(base).ask("/runs/other/")
    assert answer.status_code == 200
    assert "was taken" not in answer.text


def test_the_command_says_it_and_prints_it_as_data(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from profiler_server.commands.compare import print_pair

    before, after = open_run(base / "fit-1"), open_run(base / "fit-2")
    told = print_pair(before, after, None, is_quiet=False)["outcome"]
    assert "Since A: “" in capsys.readouterr().out
    assert told["is_in_range"] is True
    assert told["taken"][0]["rule"] == "too_few_workers"
    assert print_pair(after, before, None, is_quiet=True)["outcome"]["taken"] == []
    assert print_pair(after, after, None, is_quiet=True)["outcome"] is None


def test_every_face_says_the_same(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = base / "fit-2"
    assert run_command("report", "--json", run) == 0
    report = json.loads(capsys.readouterr().out)
    check_report(report)
    outcome = report["outcome"]
    said = outcome["sentences"]
    assert outcome["earlier"] == "fit-1"
    assert "was taken. Predicted: " in said[0]
    assert said[-1].startswith("Changed: num_workers ")
    for options in ((), ("--brief",), ("--summary-base-dir", base, "--brief")):
        assert run_command("report", *options, run) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if line.startswith("Since fit-1: ")] == [f"Since fit-1: {line}" for line in said]
    asker = Asker(base)
    assert asker.ask("/api/v1/runs/fit-2/report").json()["outcome"] == outcome
    page, compared = wait_for_words(asker, "/runs/fit-2/", "was taken"), asker.ask("/compare?a=fit-1&b=fit-2").text
    file = render_report(open_run(run), how=Reporting(earlier=open_run(base / "fit-1")))
    for text in (page, file, compared):
        words = read_words(text)
        assert all(line in words for line in said)
    redacted = render_report(open_run(run), redact=True, how=Reporting(earlier=open_run(base / "fit-1")))
    assert "Since" not in read_words(redacted)


def test_the_run_before_lies_at_the_same_path_or_beside_it(base: Path, tmp_path: Path) -> None:
    found = find_earlier_beside(open_run(base / "fit-2"))
    assert found is not None
    assert found.path == base / "fit-1"
    assert find_earlier_beside(open_run(base / "fit-1")) is None
    assert find_earlier_beside(open_run(base / "other")) is None  # of another name
    edit_run(base / "other", options={"baseline": "/elsewhere/fit-1"})
    assert find_earlier_beside(open_run(base / "other")) is not None
    (base / "fit-2/earlier").mkdir()
    (base / "fit-1").rename(base / "fit-2/earlier/20261124-120000")
    found = find_earlier_beside(open_run(base / "fit-2"))
    assert found is not None
    assert found.path.name == "20261124-120000"
    edit_run(found.path, script="another.py")
    assert find_earlier_beside(open_run(base / "fit-2")) is None


def test_a_linked_run_is_not_the_one_before(base: Path, tmp_path: Path) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    (base / "fit-1").rename(outside)
    (base / "fit-1").symlink_to(outside)
    assert find_earlier_beside(open_run(base / "fit-2")) is None


def test_a_shared_copy_names_no_folder_of_the_user(base: Path) -> None:
    edit_run(base / "other", options={"baseline": "/home/me/secret", "level": "info"})
    assert redact(open_run(base / "other")).manifest.options == {"level": "info"}


def test_only_the_run_before_on_the_same_machine_is_noted(base: Path) -> None:
    asker = Asker(base)
    assert "Since A: " in asker.ask("/compare?a=fit-1&b=other").text
    assert not (base / NAME).exists()
    edit_run(base / "fit-2", host="another machine")
    wait_for_words(asker, "/runs/fit-2/", "was taken")
    assert not (base / NAME).exists()
    edit_run(base / "other", options={"baseline": str(base / "fit-1")})
    wait_for_words(Asker(base), "/runs/other/", "was taken")
    assert (base / NAME).exists()


def test_a_run_that_is_too_large_to_judge_at_once_holds_no_page_up(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "AT_ONCE_SLICES", -1)
    text = Asker(base).ask("/compare?a=fit-1&b=fit-2").text
    assert "B is faster" in text
    assert "Since A" not in text


def test_a_run_in_which_more_was_changed_is_not_noted(base: Path) -> None:
    Ledger(base).note(LedgerEntry("more", "fit-1", "too_few_workers", 90.0, 80.0, 100.0, 34.0))
    phases = {**HEALTHY_STEP_MS, "data_wait": 1.0, "backward": 6.0}
    workers = open_run(base / "fit-2").rank(0).manifest.loaders[0].num_workers
    plan = dataclasses.replace(SLOW, workers=workers, phases_ms=phases)
    build_case_run(base / "more", Plant(plan, manifest=HOST))
    edit_run(base / "more", created_unix_ns=9, options={"baseline": str(base / "fit-1")})
    text = wait_for_words(Asker(base), "/runs/more/", "was taken")
    assert "which this advice does not cover" in text
    assert "more" not in {entry["run"] for entry in json.loads((base / NAME).read_text())}


def test_a_trial_counts_in_how_often_predictions_are_right(base: Path) -> None:
    told = diagnose(open_run(base / "fit-1"), 0).suggestions[0]
    assert told.predicted_step_ns is not None
    workers, step_ns = told.settings["num_workers"], must(measure_step(open_run(base / "fit-1").rank()))
    gain = 1.0 - told.predicted_step_ns / step_ns
    write_trials(base / "tried", entry({"loader.num_workers": workers}, gain), script="train.py")
    first = json.loads(layout.run_file(base / "fit-1").read_text())
    edit_run(base / "tried/as-it-is", script=first["script"], host=first["host"])
    text = Asker(base).ask("/runs/fit-1/").text
    assert "Tried on this script" in text
    assert "in 1 of 1 case; 1 lay in the range" in text
    assert Ledger(base).summarize()["too_few_workers"].cases == 1
    edit_run(base / "tried/as-it-is", host="another")
    assert "Tried on this script" not in Asker(base).ask("/runs/fit-1/").text
