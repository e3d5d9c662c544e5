"""What works the same on every page: the filter of steps, tables as CSV, points that open their step, keys, paper."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from collector.traces.importing import import_trace
from tests.browser.looking import wait_for_charts, wait_for_text
from tests.support.machines import build_ranks
from tests.support.runs import RunPlan, build_run
from tests.support.serving import serve
from tests.support.traces import training_steps, write_trace


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    base = tmp_path_factory.mktemp("habits")
    build_run(base / "one", RunPlan(steps=60))
    build_ranks(base / "ranks", 4, slow=2)
    import_trace(write_trace(base / "trace.json", training_steps()), base / "trace")
    with serve(base) as address:
        yield address


def test_the_filter_goes_where_one_goes_until_it_is_taken_back(page: Page, address: str) -> None:
    page.goto(f"{address}/runs/one/")
    page.get_by_label("Steps", exact=True).fill("20-29")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs/one/?steps=20-29")
    wait_for_text(page, "10 steps recorded")
    page.locator("main h1").click()
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url("**/runs/one/steps?steps=20-29")
    wait_for_text(page, "The average covers all 10 steps.")
    page.get_by_role("link", name="Operators").click()
    wait_for_text(page, "Nothing in these steps")
    page.get_by_role("link", name="Show all steps").click()
    page.wait_for_url(lambda url: "steps=" not in url)


def test_every_table_is_saved_with_its_head_and_all_rows(page: Page, address: str) -> None:
    page.goto(f"{address}/runs/one/steps")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save the table phases as CSV").click()
    lines = Path(waiting.value.path()).read_text("utf-8").splitlines()
    assert waiting.value.suggested_filename == "phases.csv"
    assert lines[0] == "Phase,When,Start,Duration,Share,p50,p95"
    assert len(lines) == 10
    assert any(line.startswith("Forward,") for line in lines)


@pytest.mark.parametrize(
    "place",
    ["ranks/", "ranks/steps", "trace/device", "ranks/data?tab=processing", "ranks/ranks"],
)
def test_no_table_lacks_its_button(page: Page, address: str, place: str) -> None:
    page.goto(f"{address}/runs/{place}")
    tables = page.locator("main table.table").count()
    assert tables
    assert page.locator("main [data-table-csv]").count() == tables


def test_a_point_opens_its_step_and_a_cell_its_place_on_the_timeline(page: Page, address: str) -> None:
    page.goto(f"{address}/runs/one/steps?steps=10-40")
    page.locator("[data-name=steps-duration]").scroll_into_view_if_needed()
    wait_for_charts(page)
    box = page.locator("[data-name=steps-duration] .nsewdrag").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    page.wait_for_timeout(200)
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url(re.compile(r"/runs/one/steps\?.*step=2\d"))
    assert "steps=10-40" in page.url
    page.goto(f"{address}/runs/ranks/ranks")
    page.locator(".heat-image").first.click(position={"x": 3, "y": 3})
    page.wait_for_url(re.compile(r"/runs/ranks/timeline\?rank=0&step=1"))


def test_the_keyboard_reaches_everything_in_reading_order(page: Page, address: str) -> None:
    page.goto(f"{address}/runs/one/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("() => document.activeElement.innerText || document.activeElement.name"))
    assert reached[:3] == ["Stepscope", "one", "steps"]
    assert reached[3:6] == ["History", "Compare", "Share link"]
    assert reached[7:9] == ["?", "Overall\no"]
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_paper_gets_the_page_without_what_can_only_be_clicked(page: Page, address: str) -> None:
    page.goto(f"{address}/runs/one/steps")
    page.emulate_media(media="print")
    for selector in (".side", ".topbar-tools", ".table-tools", "[data-chart-csv]", ".copy"):
        expect(page.locator(selector).first).to_be_hidden()
    expect(page.get_by_role("heading", name="Average step")).to_be_visible()


def test_a_dark_page_is_printed_in_light_colours_with_every_chart_and_all_advice(page: Page, server: str) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(f"{server}/runs/slow-transform")
    expect(page.locator(".advice").first).to_be_visible()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert page.locator(".advice > details:not([open])").count() == 0
    expect(page.locator("figure.chart:not([data-state=drawn])")).to_have_count(0)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.locator(".advice > details[open]").count() == 1  # the first, as before
