"""A trace that lies below the base directory: listed, imported with a click, and its run appears."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

from collector.traces import import_trace
from tests.support.serving import serve
from tests.support.traces import training_steps, write_trace

PATIENCE_MS = 90_000


def test_the_first_import_makes_the_list(page: Page, tmp_path: Path) -> None:
    write_trace(tmp_path / "plain.json", training_steps())
    (tmp_path / "broken.json").write_text('{"traceEvents": []}', encoding="utf-8")
    with serve(tmp_path) as server:
        page.goto(f"{server}/")
        broken = page.locator("#offers tr", has_text="broken.json")
        broken.get_by_role("button", name="Import broken.json").click()
        broken.locator(".offer-state.failed").wait_for(timeout=PATIENCE_MS)
        page.get_by_role("button", name="Import plain.json").click()
        page.locator("table.runs a", has_text="plain").wait_for(timeout=PATIENCE_MS)
        assert page.locator("#offers tr", has_text="plain.json").count() == 0
        assert "broken.json" in broken.locator(".offer-state.failed").inner_text()
        page.goto("about:blank")  # else the page asks for verdicts when the server has gone


def test_the_run_of_an_import_joins_the_list_that_is_shown(page: Page, tmp_path: Path) -> None:
    import_trace(write_trace(tmp_path / "first.json", training_steps(3)), tmp_path / "first")
    write_trace(tmp_path / "second.json", training_steps(4))
    with serve(tmp_path) as server:
        page.goto(f"{server}/")
        page.get_by_role("checkbox", name="Compare first").check()
        page.get_by_role("button", name="Import second.json").click()
        row = page.locator("table.runs tbody tr", has_text="second")
        row.wait_for(timeout=PATIENCE_MS)
        row.locator("[data-verdict]").wait_for(state="detached", timeout=PATIENCE_MS)
        row.get_by_role("checkbox").check()
        assert page.locator("[data-compare]").inner_text() == "Compare 2 runs"
        assert page.locator("#offers summary").inner_text() == "All traces are imported"
        page.get_by_role("link", name="Open run").click()
        page.wait_for_url(f"{server}/runs/second/")
