"""What a person does around the pages: search, compare, theme, keys, suggestions, copying, following a live run."""

from __future__ import annotations

import shutil
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.support.runs import RunPlan, build_run


def test_runs_are_searched_judged_and_compared(page: Page, server: str) -> None:
    page.goto(server)
    expect(page.locator("table.runs tbody tr")).to_have_count(5)
    page.keyboard.press("/")
    page.keyboard.type("slow")
    page.keyboard.press("Enter")
    expect(page.locator("table.runs tbody tr")).to_have_count(1)
    assert page.url.endswith("/?q=slow")
    expect(page.locator("tr", has_text="slow-transform").locator(".verdict-cell")).to_have_text("Input")
    page.goto(server)
    page.get_by_label("Compare healthy").check()
    expect(page.get_by_role("button", name="Select one more to compare")).to_be_disabled()
    page.get_by_label("Compare slow-transform").check()
    page.get_by_role("button", name="Compare 2 runs").click()
    expect(page.locator(".verdict")).to_contain_text("95.6 ms")


def test_three_ticked_runs_are_compared_and_another_can_be_the_baseline(page: Page, server: str) -> None:
    page.goto(server)
    boxes = page.locator("table.runs input[name=run]")
    for at in range(3):
        boxes.nth(at).check()
    page.get_by_role("button", name="Compare 3 runs").click()
    expect(page.locator(".compared li")).to_have_count(3)
    baseline = page.locator(".compared li").first.locator("a").first
    first = baseline.inner_text()
    page.get_by_role("link", name="Make baseline B").click()
    expect(baseline).not_to_have_text(first)
    expect(page.locator(".compared")).to_contain_text(first)


def test_the_theme_is_kept_and_goes_back_to_the_systems(page: Page, server: str) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(server)
    html = page.locator("html")
    expect(html).to_have_attribute("data-theme", "dark")
    switch = page.get_by_role("button", name="Theme")
    switch.click()
    expect(html).to_have_attribute("data-theme", "light")
    page.reload()
    expect(html).to_have_attribute("data-theme", "light")
    switch.click()
    switch.click()
    expect(html).to_have_attribute("data-theme-choice", "system")
    page.emulate_media(color_scheme="light")
    expect(html).to_have_attribute("data-theme", "light")


def test_keys_lead_to_pages_and_can_be_switched_off(page: Page, server: str) -> None:
    page.goto(f"{server}/runs/ranks/?rank=2")
    for key, slug in (("r", "ranks"), ("m", "memory"), ("s", "steps")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(f"**/runs/ranks/{slug}?rank=2")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.get_by_label("Single-letter keys are on").uncheck()
    page.get_by_role("button", name="Close").click()
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert page.url.endswith("/runs/ranks/steps?rank=2")


def test_the_rank_picker_keeps_the_page(page: Page, server: str) -> None:
    page.goto(f"{server}/runs/ranks/steps?step=3")
    page.get_by_label("Rank").select_option("1")
    page.wait_for_url("**/runs/ranks/steps?step=3&rank=1")


def test_the_short_list_of_suggestions_folds_and_stays_folded(page: Page, server: str) -> None:
    page.goto(f"{server}/runs/slow-transform/steps")
    brief = page.locator(".brief").first
    expect(brief).to_contain_text("predicted")
    toggle = page.get_by_role("button", name="Suggestions")
    toggle.click()
    expect(brief).to_be_hidden()
    page.reload()
    expect(brief).to_be_hidden()
    toggle.click()
    expect(brief).to_be_visible()


def test_a_suggestion_has_two_lines_until_it_is_opened_from_any_page(page: Page, server: str) -> None:
    page.goto(f"{server}/runs/slow-transform/data")
    title = page.locator(".brief a").first.inner_text()
    expect(page.locator("main .advice")).to_have_count(0)
    page.goto(f"{server}/runs/slow-transform/")
    card = page.locator(".advice").first
    expect(card.locator("pre").first).to_be_visible()
    second = page.locator(".advice").nth(1)
    expect(second.locator(".facts")).to_be_hidden()
    assert second.bounding_box()["height"] < 70  # type: ignore[index]
    page.goto(f"{server}/runs/slow-transform/data")
    page.locator(".brief a").first.click()
    expect(card.get_by_role("heading", name=title)).to_be_visible()
    for word in ("Measured", "Threshold", "Rule"):
        expect(card).to_contain_text(word)
    code = card.locator("pre").first
    assert code.evaluate("(pre) => pre.scrollWidth <= pre.clientWidth && pre.scrollHeight <= pre.clientHeight")


def test_a_change_is_copied(page: Page, server: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{server}/runs/slow-transform/")
    page.get_by_role("button", name="Copy the change").first.click()
    expect(page.locator("#toast")).to_have_text("Copied")
    assert "num_workers" in page.evaluate("navigator.clipboard.readText()")


def test_a_live_run_is_followed_without_moving_the_view(page: Page, server: str, base_dir: Path) -> None:
    build_run(base_dir / "live/now", RunPlan(steps=20, state="recording"))
    page.goto(f"{server}/runs/live/now/steps")
    badge = page.locator("[data-live-steps]")
    expect(badge).to_have_text("20 steps")
    update = page.get_by_role("button", name="Show new data")
    expect(update).to_be_hidden()
    page.mouse.wheel(0, 300)
    page.wait_for_timeout(300)
    place = page.evaluate("scrollY")
    build_run(base_dir / "live/now", RunPlan(steps=30, state="recording"))
    expect(update).to_be_visible()
    expect(badge).to_have_text("30 steps")
    expect(page.locator("#content")).to_contain_text("of 1 to 20")
    box = update.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 5, box["y"] + 5)  # click() would first scroll the sticky bar's place into view
    expect(page.locator("#content")).to_contain_text("of 1 to 30")
    assert page.evaluate("scrollY") == place


def test_a_deleted_run_is_said_to_be_gone(page: Page, server: str, base_dir: Path) -> None:
    folder = build_run(base_dir / "live/short", RunPlan(steps=20, state="recording"))
    page.goto(f"{server}/runs/live/short/steps")
    expect(page.locator("[data-live-steps]")).to_have_text("20 steps")
    page.keyboard.press("/")
    expect(page.locator("#step-number")).to_be_focused()
    shutil.rmtree(folder)
    expect(page.get_by_role("alert")).to_contain_text("This run is gone")
    expect(page.locator("#content")).to_contain_text("of 1 to 20")
