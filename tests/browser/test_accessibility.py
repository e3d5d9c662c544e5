"""Every page before axe-core, in both themes, on a wide screen, on half of a laptop's and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, ViewportSize

from tests.browser.looking import find_faults, wait_until
from tests.browser.test_every_page import PAGES

AXE = Path(__file__).parents[1] / "js/node_modules/axe-core/axe.min.js"
RUN = """async (isAgain) => {
  // Boxes are measured as the frame after a change of size is drawn.
  for (let frame = 0; frame < 2; frame += 1) await new Promise(requestAnimationFrame);
  const tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
  const colors = { type: "rule", values: ["color-contrast", "link-in-text-block"] };
  const runOnly = isAgain ? colors : tags;  // a theme changes nothing but colours
  const { violations } = await axe.run(document, { resultTypes: ["violations"], iframes: false, runOnly });
  return violations.flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 160)}`));
}"""
KINDS = ("rich", "no-gpu", "imported")
HALF_A_SCREEN: ViewportSize = {"width": 720, "height": 900}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDTHS = (1440, 900, 390)
VIEWS = (
    "/",
    "/?q=nothing-of-that-name",
    "/compare?a=rich&b=long",
    "/history?run=rich",
    "/api/v1/docs",
    "/runs/nowhere/steps",
    "/runs/ranks/",
    "/runs/ranks/ranks",
    "/runs/empty/",
    "/runs/empty/data",
    "/runs/hostile/",
    "/runs/imported/operators?group=kernels",
    "/runs/no-gpu/operators?group=modules",
    "/runs/no-gpu/data?tab=processing",
    "/runs/rich/data?tab=processing",
    "/runs/ranks/timeline",
)


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    yield context.new_page()
    context.close()


@pytest.mark.skipif(not AXE.exists(), reason="no axe-core: npm ci --prefix tests/js")
@pytest.mark.parametrize("address", [*(f"/runs/{kind}/{slug}" for kind in KINDS for slug in PAGES), *VIEWS])
def test_axe_finds_no_fault_in_either_theme_at_any_width(panorama: str, tab: Page, address: str) -> None:
    tab.set_viewport_size(HALF_A_SCREEN)
    tab.emulate_media(color_scheme="light")
    tab.goto(panorama + address)
    assert find_faults(tab) == []
    if address.endswith("/timeline"):
        wait_until(tab, "!document.getElementById('timeline').hidden")
    tab.evaluate(f"{AXE.read_text()}; 0")
    found = []
    for width in WIDTHS:
        tab.set_viewport_size({"width": width, "height": 900})
        for theme in THEMES:
            tab.emulate_media(color_scheme=theme)
            found += [(width, theme, fault) for fault in tab.evaluate(RUN, theme != THEMES[0])]
    assert found == []


@pytest.mark.parametrize("width", [700, 1099])
@pytest.mark.parametrize("address", ["/runs/rich/", "/runs/imported/operators?group=kernels", "/runs/ranks/ranks", "/"])
def test_no_page_scrolls_sideways_on_a_narrow_screen(panorama: str, tab: Page, address: str, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 900})
    tab.goto(panorama + address)
    assert find_faults(tab) == []


def test_a_table_that_is_cut_off_says_so_and_is_reached_by_the_keyboard(panorama: str, tab: Page) -> None:
    tab.set_viewport_size(HALF_A_SCREEN)
    tab.goto(f"{panorama}/runs/imported/operators?group=kernels")
    box = tab.locator(".table-scroll")
    assert "more-right" in (box.get_attribute("class") or "")
    box.focus()
    assert tab.evaluate("document.activeElement.matches('.table-scroll')")
    box.evaluate("(box) => box.scrollTo({ left: box.scrollWidth, behavior: 'instant' })")
    tab.wait_for_selector(".table-scroll:not(.more-right)")
