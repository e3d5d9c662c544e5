"""The Operators and Data pipeline pages as a person uses them."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect


def test_the_operator_types_are_drawn_and_open_in_place(page: Page, server: str) -> None:
    page.goto(f"{server}/runs/healthy/operators")
    expect(page.locator("figure.chart[data-state=drawn]")).to_be_visible()
    page.evaluate("() => { document.body.dataset.kept = 'yes'; }")
    page.get_by_role("link", name="convolution", exact=True).click()
    expect(page.get_by_text("aten::mkldnn_convolution")).to_be_visible()
    page.get_by_role("link", name="aten::mkldnn_convolution").click()
    expect(page.get_by_text("By input shape")).to_be_visible()
    assert page.evaluate("() => document.body.dataset.kept") == "yes"
    assert "operator=aten" in page.url
    page.go_back()
    expect(page.get_by_text("By input shape")).to_have_count(0)
    expect(page.get_by_text("aten::mkldnn_convolution")).to_be_visible()


def test_typing_filters_and_keeps_the_cursor(page: Page, server: str) -> None:
    page.goto(f"{server}/runs/healthy/operators?group=operators")
    search = page.get_by_label("Search this table")
    search.press_sequentially("CNVB", delay=30)
    expect(page.locator(".operators-grid tbody tr")).to_have_count(1)
    expect(page.get_by_role("status").filter(has_text="loosely")).to_be_visible()
    expect(search).to_have_value("CNVB")
    expect(search).to_be_focused()
    search.press_sequentially("w")
    expect(page).to_have_url(re.compile("q=CNVBw"))


def test_a_column_sorts_both_ways_and_keeps_the_focus(page: Page, server: str) -> None:
    page.goto(f"{server}/runs/healthy/operators?group=operators")
    head = page.locator(".operators-grid thead th").filter(has_text="Calls")
    head.get_by_role("link").focus()
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    expect(head.get_by_role("link")).to_be_focused()
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "ascending")
    expect(page.locator(".operators-grid tbody tr").first).to_contain_text("aten::_foreach_addcdiv_")


def test_pie_and_bars_change_places(page: Page, server: str) -> None:
    page.goto(f"{server}/runs/healthy/operators")
    page.get_by_role("link", name="Bars").click()
    expect(page.locator("figure.chart[data-state=drawn] .barlayer")).to_be_visible()
    assert "chart=bar" in page.url


def test_the_starved_queue_is_told_and_opens(page: Page, server: str) -> None:
    page.goto(f"{server}/runs/slow-transform/data")
    expect(page.get_by_text("Highly input-bound")).to_be_visible()
    expect(page.get_by_text("empty in 30 of 40 requests")).to_be_visible()
    page.get_by_role("link", name="Data processing").click()
    expect(page.get_by_text("Limited by transform")).to_be_visible()
    page.get_by_role("link", name=re.compile("Worker queue")).click()
    expect(page.get_by_text("Worker queue: depth over time")).to_be_visible()
    expect(page.locator("figure.chart[data-state=drawn]")).to_be_visible()
    assert "queue=worker_queue" in page.url


def test_the_stage_graph_fits_the_page(page: Page, server: str) -> None:
    page.goto(f"{server}/runs/slow-transform/data?tab=processing")
    boxes = page.locator(".stage").all()
    for box in boxes:
        inner = box.evaluate("node => [node.scrollWidth, node.clientWidth]")
        assert inner[0] <= inner[1] + 1
    width = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]


def test_everything_works_without_javascript(page: Page, server: str) -> None:
    browser = page.context.browser
    assert browser is not None
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(f"{server}/runs/healthy/operators?group=operators")
    plain.get_by_label("Search this table").fill("relu")
    plain.get_by_role("button", name="Search").click()
    expect(plain.locator(".operators-grid tbody tr")).to_have_count(1)
    plain.get_by_role("link", name="aten::relu").click()
    expect(plain.get_by_text("By step")).to_be_visible()
    context.close()
