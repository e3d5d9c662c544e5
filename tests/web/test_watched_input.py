"""Input that is no DataLoader: what Overall, the Data pipeline page and the report say of it."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from collector.format.run import open_run
from profiler_server.report import build_report
from profiler_server.report.text import render_text
from tests.support.asking import Asker
from tests.support.cases import PLANTED, build_case_run
from tests.support.tables import edit_manifest

PAGES = ("", "data", "data?tab=processing")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return build_case_run(tmp_path / "run", PLANTED["watched_input"]).path


def show(run: Path, page: str) -> str:
    """Return the text of a page without the code of the suggestion."""
    answer = Asker(run.parent).ask(f"/runs/run/{page}")
    assert answer.status_code == 200
    text = re.sub(r"<pre.*?</pre>|<(script|style)[^>]*>.*?</\1>", "", answer.text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text)))


@pytest.mark.parametrize("page", PAGES)
def test_every_page_says_that_the_training_thread_reads_its_own_input(run: Path, page: str) -> None:
    text = show(run, page)
    assert "The training thread reads its own input" in text
    assert "nothing reads ahead" in text
    assert "data_pipeline=True" not in text
    assert "There are no worker processes" not in text
    assert "num_workers=0" not in text


def test_the_graph_has_no_stages_of_a_loader_that_there_is_not(run: Path) -> None:
    text = show(run, "data?tab=processing")
    assert "not measured" not in text
    assert "waits for each item of “" in text
    assert "Watched input" in text
    assert "The arguments that it was made with" not in text


def test_the_suggestion_leads_to_the_page_that_shows_it(run: Path) -> None:
    page = Asker(run.parent).ask("/runs/run/").text
    link = re.search(r'href="([^"]*tab=processing[^"]*)"[^>]*>\s*Work and wait of each stage', page)
    assert link
    assert "The training thread reads its own input" in Asker(run.parent).ask(html.unescape(link[1])).text


@pytest.mark.parametrize(("ahead", "said"), [(True, "make the items of"), (None, "is not known")])
def test_what_is_not_known_of_the_input_is_not_claimed(run: Path, ahead: bool | None, said: str) -> None:
    loaders = open_run(run).rank().manifest.loaders
    edit_manifest(run, loaders=tuple(type(entry)(**{**vars(entry), "reads_ahead": ahead}) for entry in loaders))
    for page in PAGES:
        text = show(run, page)
        assert said in text, page
        assert "nothing reads ahead" not in text


def test_the_report_says_the_same_in_whole_sentences(run: Path) -> None:
    opened = open_run(run)
    text = render_text(build_report(opened), opened)
    assert "The training thread reads its own input" in text
