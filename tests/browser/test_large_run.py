"""A run with over a million slices in a browser: the page is there at once, its figures come by themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.looking import find_faults, wait_for_charts
from tests.support.large import build_large_run
from tests.support.serving import serve

PATIENT_MS = 90_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with the run `large`."""
    base = tmp_path_factory.mktemp("large")
    build_large_run(base / "large")
    with serve(base) as address:
        yield address


def test_figures_take_the_place_of_the_notice_without_a_reload(page: Page, large: str) -> None:
    page.goto(f"{large}/runs/large/device")
    expect(page.locator("main")).to_contain_text("Being computed …")
    assert find_faults(page) == []
    page.evaluate("document.title = 'the same document'")
    expect(page.get_by_role("heading", name="Device 0: NVIDIA H100")).to_be_visible(timeout=PATIENT_MS)
    expect(page.locator("[data-pending]")).to_have_count(0, timeout=PATIENT_MS)
    wait_for_charts(page)
    assert page.title() == "the same document"


def test_the_verdict_and_the_cards_of_overall_fill_themselves_in(page: Page, large: str) -> None:
    page.goto(f"{large}/runs/large/")
    expect(page.locator(".stat").filter(has_text="Device busy")).to_contain_text("%", timeout=PATIENT_MS)
    expect(page.locator("h1.verdict")).not_to_contain_text("being judged", timeout=PATIENT_MS)
