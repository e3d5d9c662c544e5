"""Pages of runs that record: what follows them by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.runs import RunPlan, build_run
from tests.support.serving import serve
from tests.support.tables import take_window

PATIENT_MS = 90_000


@pytest.fixture
def live(tmp_path: Path) -> Iterator[str]:
    """The address of a server with the runs `live`, which records, and `done`.

    A test asks for it before `page`, whose looks at the run must end before the server does.
    """
    build_run(tmp_path / "done", RunPlan(steps=15))
    build_run(tmp_path / "live", RunPlan(steps=20, state="recording"))
    with serve(tmp_path) as address:
        yield address


def test_the_row_of_a_recording_run_follows_it_to_its_end(live: str, page: Page, tmp_path: Path) -> None:
    page.goto(f"{live}/")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="live"))
    expect(row.get_by_role("cell").nth(6)).to_have_text("20")
    row.get_by_role("checkbox").check()
    build_run(tmp_path / "live", RunPlan(steps=30, state="recording"))
    expect(row.get_by_role("cell").nth(6)).to_have_text("30", timeout=PATIENT_MS)
    build_run(tmp_path / "live", RunPlan(steps=40))
    expect(row).to_contain_text("Complete", timeout=PATIENT_MS)
    expect(row.get_by_role("cell").nth(6)).to_have_text("40")
    expect(row.get_by_role("checkbox")).to_be_checked()


def test_a_window_that_was_asked_for_shows_without_a_reload(live: str, page: Page, tmp_path: Path) -> None:
    page.goto(f"{live}/runs/live/steps")
    expect(page.get_by_label("Detailed window from step")).to_have_value("")
    page.get_by_role("button", name="Take it").click()
    expect(page.locator("#window")).to_contain_text("Asked for last: the next 3 steps.")
    expect(page.locator("[data-live-steps]")).to_have_text("20 steps")
    page.get_by_label("Detailed window from step").fill("77")
    take_window(tmp_path / "live", 18, 20)
    expect(page.locator("#window")).to_contain_text("Taken last: steps 18 to 20.", timeout=PATIENT_MS)
    expect(page.locator("#windows")).to_contain_text("18–20")
    expect(page.get_by_label("Detailed window from step")).to_have_value("77")
