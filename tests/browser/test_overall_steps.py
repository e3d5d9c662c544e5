"""Overall and Step trace as a person reads them: figures, charts that draw and zoom, keys, themes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.browser.looking import draw_all, wait_until


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_overall_says_the_verdict_first_and_draws_its_charts(page: Page, server: str, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.goto(f"{server}/runs/slow-transform/")
    assert page.inner_text("main h1").startswith("Highly input-bound")
    assert "transform" in page.inner_text("#card-data .limiting")
    assert "100.0 %" in page.inner_text(".part-sum")
    draw_all(page)
    assert page.locator("#card-operators .slice").count() >= 3


def test_every_card_leads_to_its_page(page: Page, server: str) -> None:
    page.goto(f"{server}/runs/healthy/")
    for slug, heading in (
        ("steps", "Step trace"),
        ("operators", "Operators"),
        ("data", "Data"),
        ("timeline", "Timeline"),
    ):
        address = page.get_attribute(f"#card-{slug} header a", "href") or ""
        assert f"/runs/healthy/{slug}" in address
        assert heading in page.inner_text(f"#card-{slug} h2")


def test_a_step_is_picked_by_number_by_button_and_by_key(page: Page, server: str) -> None:
    page.goto(f"{server}/runs/healthy/steps")
    assert page.inner_text("#graph-title").startswith("Average step")
    page.fill("#step-number", "7")
    page.press("#step-number", "Enter")
    page.wait_for_url("**step=7*")
    assert page.inner_text("#graph-title").startswith("Step 7")
    page.click('a[data-step="next"]')
    page.wait_for_url("**step=8*")
    page.locator("body").press("[")
    page.wait_for_url("**step=7*")
    assert page.input_value("#step-number") == "7"


def test_zooming_one_chart_zooms_all_and_asks_the_server(page: Page, server: str) -> None:
    page.goto(f"{server}/runs/healthy/steps")
    draw_all(page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    area = page.locator("[data-name=steps-duration] .nsewdrag")
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + box["height"] * 0.5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5, steps=8)
    page.mouse.up()
    wait_until(page, "!document.querySelector('[data-name=steps-phases] [data-chart-reset]').hidden")
    wait_until(page, "document.querySelector('[data-name=steps-phases] .chart-plot').layout.xaxis.range[0] > 5")
    assert len([url for url in asked if "/charts/" in url and "from=" in url]) >= 3
    page.click("[data-name=steps-duration] [data-chart-reset]")
    wait_until(page, "document.querySelector('[data-name=steps-phases] .chart-plot').layout.xaxis.range[0] < 1")


def test_charts_take_the_colors_of_the_theme(page: Page, server: str) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(f"{server}/runs/healthy/steps")
    draw_all(page)
    color = "document.querySelector('[data-name=steps-phases] .chart-plot').data.find(t => t.name === 'Forward').marker.color"
    assert page.evaluate(color) == "#111eae"
    page.emulate_media(color_scheme="dark")
    wait_until(page, f"{color} === '#2f47fa'")


@pytest.mark.parametrize(("button", "suffix"), [("png", ".png"), ("csv", ".csv")])
def test_a_chart_is_saved_as_picture_and_as_data(page: Page, server: str, button: str, suffix: str) -> None:
    page.goto(f"{server}/runs/healthy/steps")
    draw_all(page)
    with page.expect_download() as waiting:
        page.click(f"[data-name=steps-duration] [data-chart-{button}]")
    saved = Path(waiting.value.path())
    assert waiting.value.suggested_filename == f"steps-duration{suffix}"
    if button == "csv":
        assert saved.read_text("utf-8").splitlines()[0] == "Steps,Longest step"
    else:
        assert saved.read_bytes().startswith(b"\x89PNG")


def test_the_first_chart_is_there_soon(page: Page, server: str) -> None:
    took_s = []
    for _ in range(4):
        begin = time.monotonic()
        page.goto(f"{server}/runs/healthy/")
        wait_until(page, "document.querySelector('figure.chart')?.dataset.state === 'drawn'")
        took_s.append(time.monotonic() - begin)
    assert min(took_s) < 10.0
