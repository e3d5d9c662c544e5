"""Memory and resources, and Ranks as a person uses them: charts draw, a click picks a moment, cells speak."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from collector.format.schema.manifest import Signal
from tests.browser.looking import draw_all, wait_until
from tests.support.live import edit_rank
from tests.support.machines import build_machine, build_ranks
from tests.support.runs import RunPlan, build_run
from tests.support.serving import serve


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    base: Path = tmp_path_factory.mktemp("machines")
    build_machine(base / "gpu")
    build_machine(base / "cpu", gpu=False)
    build_ranks(base / "slow", 4, slow=3)
    build_ranks(base / "many", 64, slow=17)
    switched_off = tuple(Signal(name, "off", "Switched off.") for name in ("resources", "memory", "window"))
    edit_rank(build_run(base / "off", RunPlan(operators=False)), signals=switched_off)
    with serve(base) as address:
        yield address


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["gpu/memory", "cpu/memory", "slow/ranks", "many/ranks?rank=17"])
def test_every_chart_draws_and_nothing_sticks_out(page: Page, machines: str, path: str, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": 1100, "height": 800})
    page.goto(f"{machines}/runs/{path}")
    draw_all(page)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_click_on_the_memory_chart_shows_what_was_alive(page: Page, machines: str) -> None:
    page.goto(f"{machines}/runs/gpu/memory")
    assert page.inner_text("#moment-title").startswith("Alive at the peak")
    draw_all(page)
    area = page.locator("[data-name=memory] .nsewdrag")
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    assert box is not None
    curve = page.locator("[data-name=memory] .scatterlayer .trace .lines path").first.bounding_box()
    assert curve is not None
    page.mouse.move(box["x"] + 4, curve["y"] + curve["height"] / 2)
    page.mouse.move(box["x"] + 2, curve["y"] + curve["height"] / 2)
    page.mouse.down()
    page.mouse.up()
    page.wait_for_url("**at_ns=*")
    assert "aten::mm" in page.inner_text("#moment")
    page.click("text=Show the peak")
    page.wait_for_url(lambda url: "at_ns" not in url)


def test_a_range_of_steps_is_typed_and_taken_back(page: Page, machines: str) -> None:
    page.goto(f"{machines}/runs/gpu/memory")
    page.fill("#step-filter", "50-90")
    page.press("#step-filter", "Enter")
    page.wait_for_url("**steps=50-90*")
    assert "samples" in page.inner_text("section[aria-labelledby=cpu-title] .part-title")
    page.fill("#step-filter", "nonsense")
    page.press("#step-filter", "Enter")
    assert "All steps are shown" in page.inner_text("[role=alert]")


def test_the_slow_rank_is_read_first_and_its_cells_speak(page: Page, machines: str) -> None:
    page.goto(f"{machines}/runs/slow/ranks")
    assert page.inner_text("main .verdict").startswith("Rank 3 holds 3 others up")
    image = page.locator(".heat-image").first
    image.scroll_into_view_if_needed()
    box = image.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 2, box["y"] + box["height"] - 2)
    wait_until(page, "document.querySelector('.heat-said').textContent.startsWith('Rank 3, step 1: ')")


def test_the_table_sorts_and_a_rank_is_chosen_for_every_page(page: Page, machines: str) -> None:
    page.goto(f"{machines}/runs/slow/ranks")
    page.click(".rank-table th >> text=Own time")
    page.wait_for_url("**sort=-own*")
    assert page.inner_text(".rank-table tbody tr:first-child td:first-child").startswith("3")
    page.click(".rank-table tbody tr:first-child .rank-number")
    page.wait_for_url("**rank=3*")
    assert "rank=3" in (page.get_attribute("nav a[data-key=s]", "href") or "")
