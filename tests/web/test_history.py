"""The history of a script on its page and as data: what it shows of runs, and where and why the step changed."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from tests.support.asking import Asker
from tests.support.histories import COMMITS, Recorded, build_history, build_recorded
from tests.support.panorama import build_hostile


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Asker:
    base = tmp_path_factory.mktemp("history")
    build_history(base)
    build_recorded(base / "alone-1", Recorded(day=3))
    build_hostile(base / "hostile-1")
    return Asker(base)


def read(asker: Asker, address: str) -> str:
    """Return the words of a page, without its figures."""
    text = re.sub(r"<script.*?</script>", "", asker.ask(address).text, flags=re.DOTALL)
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text)))


def test_a_change_names_commits_phase_line_and_code(told: Asker) -> None:
    page = read(told, "/history?run=cnn-3")
    assert "in the 7 runs before and is" in page
    assert f"Commit {COMMITS[1][:9]} → {COMMITS[2][:9]} with changes" in page
    assert re.search(r"Phases Forward \+\d", page)
    assert "normalize() is new" in page
    assert "Changed: train.py +1 −0 lines." in page
    assert page.count("Compare with the run before it") == 1


def test_runs_of_another_machine_have_a_line_of_their_own(told: Asker) -> None:
    page = read(told, "/history?run=cnn-3")
    assert "here, no GPU, batch size 32" in page
    assert "gpu-box, NVIDIA H100, batch size 64" in page
    assert "cnn-200 no steps" in page


def test_the_newest_history_is_shown_unless_one_is_asked_for(told: Asker) -> None:
    assert "train.py cnn" in read(told, "/history")
    assert "train.py cnn" in read(told, "/history?script=train.py")
    assert "No run here is of the script none.py" in read(told, "/history?script=none.py")


def test_one_run_says_what_a_history_needs(told: Asker) -> None:
    page = read(told, "/history?run=alone-1")
    assert "One run only" in page
    assert "from eight runs on" in page


def test_hostile_names_are_text(told: Asker) -> None:
    answer = told.ask("/history?run=hostile-1")
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text
    assert len(answer.text) < 100_000


@pytest.mark.parametrize(
    ("query", "status"), [("run=none", 404), ("run=../x", 404), ("page=x", 400), ("run=cnn-1&page=99", 200)]
)
def test_what_is_not_there_is_said(told: Asker, query: str, status: int) -> None:
    assert told.ask(f"/history?{query}").status_code == status


def test_the_list_and_a_run_lead_to_the_history(told: Asker) -> None:
    assert 'href="/history?run=cnn-3"' in told.ask("/runs/cnn-3/").text
    assert 'href="/history"' in told.ask("/").text


def test_the_history_is_data_too(told: Asker) -> None:
    histories = told.ask("/api/v1/history?run=cnn-3").json()["histories"]
    own, other = histories
    assert [run["id"] for run in own["runs"]] == [f"cnn-{at}" for at in range(14)]
    assert (own["kind"]["batch_size"], other["kind"]["device"]) == (32, "NVIDIA H100")
    assert [change["since"] for change in own["changes"]] == ["cnn-7"]
    assert own["runs"][7]["is_dirty"]
    assert own["runs"][7]["step_range_ns"][0] < own["runs"][7]["step_p50_ns"] < own["runs"][7]["step_range_ns"][1]
    assert told.ask("/api/v1/history?run=none").status_code == 404
    assert told.ask("/api/v1/history?odd=1").status_code == 400


def test_no_run_at_all_has_no_history(tmp_path: Path) -> None:
    asker = Asker(tmp_path)
    assert "No run is recorded here yet" in read(asker, "/history")
    assert asker.ask("/api/v1/history").json() == {"histories": []}
