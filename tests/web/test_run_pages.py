"""The pages of a run: addresses, ranks, hostile names, and what goes wrong with one page or one run."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from collector.format.schema import layout
from profiler_server.page import Page, PageRequest
from profiler_server.web import services
from profiler_server.web.shell import find_pages
from tests.support.asking import Asker
from tests.support.live import edit_run
from tests.support.runs import MS, RunPlan, build_run, build_steps
from tests.support.tables import write_rows


def test_an_address_without_the_last_slash_leads_on_and_keeps_its_query(asker: Asker) -> None:
    answer = asker.ask("/runs/team/slow?rank=0")
    assert answer.status_code == 307
    assert answer.headers["location"] == "/runs/team/slow/?rank=0"


def test_a_run_that_is_called_like_a_page_can_be_opened(tmp_path: Path) -> None:
    build_run(tmp_path / "a", RunPlan(steps=3))
    build_run(tmp_path / "a/steps", RunPlan(steps=4))
    asker = Asker(tmp_path)
    assert "<title>Step trace · a · Stepscope" in asker.ask("/runs/a/steps").text
    assert "· steps · Stepscope" in asker.ask("/runs/a/steps/").text
    assert "<title>Step trace · steps · Stepscope" in asker.ask("/runs/a/steps/steps").text


@pytest.mark.parametrize(
    "path",
    [
        "/runs/none/",
        "/runs/none",
        "/runs/../etc/passwd",
        "/runs/%2e%2e/%2e%2e/etc/",
        "/runs/..%2f..%2fetc/steps",
        "/runs/healthy/profiler/",
        "/runs//",
        "/runs/",
        "/runs/healthy%00/",
        "/runs/healthy/none",
        "/runs/" + "a/" * 500,
    ],
)
def test_what_is_no_run_is_a_designed_404(asker: Asker, path: str) -> None:
    answer = asker.ask(path)
    assert answer.status_code == 404
    assert "List of runs" in answer.text
    assert "root:" not in answer.text


def test_every_link_of_a_page_keeps_the_rank(asker: Asker) -> None:
    text = asker.ask("/runs/ranks/steps?rank=2&steps=3-5").text
    assert 'href="/runs/ranks/operators?rank=2&amp;steps=3-5"' in text
    assert '<option value="2" selected>' in text
    assert '<input type="hidden" name="steps" value="3-5">' in text


@pytest.mark.parametrize(("rank", "status"), [("9", 404), ("x", 400), ("-1", 400), ("1" * 50, 400), ("%D9%A3", 400)])
def test_a_rank_that_is_not_there_says_which_are(asker: Asker, rank: str, status: int) -> None:
    answer = asker.ask(f"/runs/ranks/?rank={rank}")
    assert answer.status_code == status
    assert "ranks 0 to 2" in answer.text


def test_hostile_names_are_text(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>\"'&{{7*7}}"
    build_run(tmp_path / name, RunPlan(steps=3))
    edit_run(tmp_path / name, script="</script><script>alert(1)//")
    asker = Asker(tmp_path)
    for path in ("/", "/runs/" + "%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E%22%27%26%7B%7B7%2A7%7D%7D/"):
        answer = asker.ask(path)
        assert answer.status_code == 200
        assert "<img src=x" not in answer.text
        assert "<script>alert" not in answer.text
        assert "{{7*7}}" in answer.text


def test_a_run_that_vanishes_while_it_is_shown(tmp_path: Path) -> None:
    build_run(tmp_path / "a", RunPlan(steps=3))
    build_run(tmp_path / "b", RunPlan(steps=3))
    asker = Asker(tmp_path)
    assert asker.ask("/runs/a/").status_code == 200
    shutil.rmtree(tmp_path / "a")
    gone = asker.ask("/runs/a/steps")
    assert gone.status_code == 404
    assert "moved or deleted" in gone.text
    assert asker.ask("/runs/b/").status_code == 200


def test_a_rank_folder_that_vanishes_leaves_a_clear_page(tmp_path: Path) -> None:
    build_run(tmp_path / "a", RunPlan(steps=3))
    shutil.rmtree(layout.rank_path(tmp_path / "a", 0))
    answer = Asker(tmp_path).ask("/runs/a/")
    assert answer.status_code == 404
    assert "no rank folder yet" in answer.text


def test_a_run_of_a_newer_version_says_so(tmp_path: Path) -> None:
    build_run(tmp_path / "a", RunPlan(steps=3))
    edit_run(tmp_path / "a", schema_version=99)
    answer = Asker(tmp_path).ask("/runs/a/")
    assert answer.status_code == 409
    assert "version 99" in answer.text
    assert "pip install --upgrade stepscope" in answer.text


@pytest.fixture
def odd_pages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A room with a good page, one that raises when it is built, and one that cannot be imported."""

    def fail(request: PageRequest) -> None:
        raise ZeroDivisionError("the page's own fault")

    package = ModuleType("odd_pages")
    package.__path__ = [str(Path(__file__).parent / "odd_pages")]
    monkeypatch.setitem(sys.modules, "odd_pages", package)
    raising = ModuleType("odd_pages.raising")
    raising.PAGE = Page("raising", "Raising", 2, "x", "error.html", fail)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "odd_pages.raising", raising)
    monkeypatch.setattr(services, "find_pages", lambda _: find_pages(package))
    return package


@pytest.mark.usefixtures("odd_pages")
def test_a_page_that_cannot_be_loaded_takes_nothing_down(web_base: Path) -> None:
    asker = Asker(web_base)
    broken = asker.ask("/runs/healthy/broken")
    assert broken.status_code == 500
    assert "no_such_module" in broken.text
    assert "failed</span>" in broken.text
    raising = asker.ask("/runs/healthy/raising")
    assert raising.status_code == 500
    assert "the page&#39;s own fault" in raising.text
    assert 'class="nav"' in raising.text
    assert asker.ask("/").status_code == 200


Ask = Callable[[str], httpx.Response]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    return Asker(tmp_path).ask


def test_a_chart_is_drawn_again_for_a_range(tmp_path: Path, ask: Ask) -> None:
    build_run(tmp_path / "team" / "run", RunPlan(steps=600))
    figure = ask("/api/v1/runs/team/run/charts/phases?from=100&to=120").json()
    assert figure["data"][0]["x"] == list(range(100, 121))


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("healthy/charts/nothing", 400),
        ("healthy/charts/phases?from=x", 422),
        ("healthy/charts/phases?rank=7", 404),
        ("absent/charts/phases", 404),
    ],
)
def test_a_chart_that_cannot_be_drawn_says_why(asker: Asker, path: str, status: int) -> None:
    answer = asker.ask(f"/api/v1/runs/{path}")
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_micro_batches_and_the_step_that_carries_a_mean_are_named(tmp_path: Path) -> None:
    rows = [row | {"fetches": 4, "backwards": 4} for row in build_steps(RunPlan(steps=40))]
    rows[29]["tail_ns"] += 900 * MS
    rows[29]["duration_ns"] += 900 * MS
    write_rows(build_run(tmp_path / "run", RunPlan(steps=40)), "steps", rows)
    asker = Asker(tmp_path)
    for page in ("", "steps"):
        text = asker.ask(f"/runs/run/{page}").text
        assert "A step is 4 micro-batches" in text
        assert "mostly step 30" in text
