"""The documents as a site, from files: strictly built, without a network, with the search and the saved pages of a run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Page, Request, expect

from tests.support.runs import build_run, slow_loader_plan
from tests.support.site import ROOT, list_problems, list_unlisted

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("zensical")
    folder = tmp_path_factory.mktemp("documents")
    build_run(folder / "runs/demo", slow_loader_plan("transform"))
    # A process of its own: beside Playwright no page can be asked for in this one.
    command = [sys.executable, "-m", "tests.support.site", "--demo", str(folder / "runs/demo"), str(folder / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder / "site"


def test_every_document_is_in_the_navigation() -> None:
    assert list_unlisted() == []


def test_dead_links_missing_sections_and_files_of_other_hosts_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#there">b</a><img src="none.png"><a href="b.html#gone">b</a>')
    (tmp_path / "b.html").write_text('<h2 id="there">B</h2><script src="https://example.org/x.js"></script>')
    assert list_problems(tmp_path) == [
        "a.html leads to b.html#gone, which has no such section",
        "a.html leads to none.png, which is not there",
        "b.html loads https://example.org/x.js",
    ]


def test_pages_open_from_files_without_asking_a_network(site: Path, page: Page) -> None:
    asked: list[str] = []

    def note(request: Request) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            asked.append(request.url)

    page.on("request", note)
    for name in ("index.html", "how-to/gpu-idles.html", "reference/rules.html"):
        page.goto((site / name).as_uri())
        expect(page.locator("h1").first).to_be_visible()
    assert asked == []


def test_the_search_finds_a_page_without_a_server(site: Path, page: Page) -> None:
    page.goto((site / "index.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("num_workers")
    expect(page.get_by_text(re.compile(r"\d+ results"))).to_be_visible()


def test_saved_pages_of_a_run_draw_their_charts_and_lead_to_each_other(site: Path, page: Page) -> None:
    page.goto((site / "index.html").as_uri())
    page.get_by_role("link", name="Look at a recorded run").click()
    expect(page.locator("h1").first).to_contain_text("Highly input-bound")
    page.get_by_role("link", name="Step trace").first.click()
    page.locator("figure.chart").first.scroll_into_view_if_needed()
    expect(page.locator("figure.chart[data-state=drawn]").first).to_be_visible()


def test_the_first_page_is_short_and_the_index_lists_the_others(site: Path) -> None:
    text = (site / "index.md").read_text("utf-8")
    assert len(text.split()) <= 120
    index = (site / "llms.txt").read_text("utf-8")
    links = re.findall(r"\]\((.*?)\)", index)
    assert len(links) > 20
    assert [link for link in links if not (site / link).exists()] == []
