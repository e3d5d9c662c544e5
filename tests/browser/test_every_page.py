"""Every page on every kind of run: what a person reads, no fault in the console, nothing too wide, faint or without a name."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.looking import NONSENSE, find_faults, measure_shift, wait_for_charts, wait_for_text

PAGES = ("", "steps", "operators", "device", "data", "memory", "ranks", "timeline")
LOOKED_AT = (
    *((kind, slug) for kind in ("rich", "imported", "hostile") for slug in PAGES),
    *(("empty", slug) for slug in ("", "data")),
    *(("no-gpu", slug) for slug in ("device", "data")),
    *(("ranks", slug) for slug in ("", "ranks", "timeline")),
    ("crashed", ""),
    *(("long", slug) for slug in ("", "steps", "data", "timeline")),
)
"""Kinds of runs and pages that look different; `tests/web/test_rendered_contexts.py` reads what each of them says."""


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Page]:
    """One tab at the least width for all of them: a browser's cache is part of how pages are used."""
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    yield context.new_page()
    context.close()


@pytest.mark.parametrize(("kind", "slug"), LOOKED_AT)
def test_page_can_be_read(panorama: str, tab: Page, kind: str, slug: str) -> None:
    complaints: list[str] = []
    tab.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.emulate_media(color_scheme="dark" if len(kind + slug) % 2 else "light")
    answer = tab.goto(f"{panorama}/runs/{kind}/{slug}")
    assert answer is not None
    assert answer.status == 200
    wait_for_charts(tab)
    text = tab.inner_text("main")
    assert re.search(NONSENSE, text) is None
    assert "\u202e" not in text  # nothing turns the page's own words round
    assert find_faults(tab) == []
    shift, moved = measure_shift(tab)
    assert shift < 0.05, moved
    assert complaints == []


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("/", "hostile"),
        ("/?q=nothing-of-that-name", "No run matches"),
        ("/compare", "Choose two runs"),
        ("/compare?a=rich&b=long", "Where the step changed"),
        ("/runs/rich/?steps=nonsense", "is no range of steps"),
        ("/runs/rich/steps?steps=10-40&step=12", "Step 12"),
        ("/runs/no-gpu/operators?group=operators&q=conv", "of 7 operators match"),
        ("/runs/no-gpu/data?tab=processing", "Limited by transform"),
        ("/api/v1/docs", "/api/v1/runs"),
    ],
)
def test_other_views_can_be_read(panorama: str, tab: Page, address: str, wanted: str) -> None:
    tab.emulate_media(color_scheme="dark" if len(address) % 2 else "light")
    tab.goto(panorama + address)
    wait_for_charts(tab)
    wait_for_text(tab, wanted)
    assert find_faults(tab) == []


def test_little_is_sent_the_first_time_and_less_after(panorama: str, browser: Browser) -> None:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    sent: list[float] = []
    session.on("Network.loadingFinished", lambda event: sent.append(event["encodedDataLength"]))
    page.goto(f"{panorama}/runs/rich/")
    wait_for_charts(page)
    assert 10_000 < sum(sent) < 2_000_000
    for slug in ("", "steps", "operators", "timeline"):
        page.goto(f"{panorama}/runs/long/{slug}")
        wait_for_charts(page)
        sent.clear()
        page.goto(f"{panorama}/runs/long/{slug}")
        wait_for_charts(page)
        assert 0 < sum(sent) < 150_000, slug
    context.close()
