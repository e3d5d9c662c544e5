"""Pages opened in a real Chromium. `page` fails the test when a page logs an error or breaks the content policy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.support.panorama import PANORAMA
from tests.support.runs import RunPlan, build_run, slow_loader_plan
from tests.support.serving import serve

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 60_000
"""How long a page may take to show what is asserted, and to do what it is told, on a machine that is busy."""
expect.set_options(timeout=PATIENCE_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    # As long as Playwright runs, asyncio.run() is refused in this thread: it ends with the tests of this folder.
    if CHROMIUM is None:
        pytest.skip("no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of 1,400 × 900 whose console must stay free of errors."""
    errors: list[str] = []

    def note(message: ConsoleMessage) -> None:
        # A missing page logs its own 404; tests that ask for one assert on it.
        if message.type == "error" and "status of 4" not in message.text:
            errors.append(message.text)

    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    opened = context.new_page()
    opened.on("console", note)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    assert errors == []


@pytest.fixture(scope="session")
def base_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs built in code: healthy, input-bound, four ranks, crashed, without detail."""
    base = tmp_path_factory.mktemp("runs")
    build_run(base / "healthy", RunPlan())
    build_run(base / "slow-transform", slow_loader_plan("transform"))
    build_run(base / "ranks", RunPlan(ranks=4))
    build_run(base / "crashed", RunPlan(state="crashed"))
    build_run(base / "light", RunPlan(operators=False))
    return base


@pytest.fixture(scope="session")
def server(base_dir: Path) -> Iterator[str]:
    """The address of a server that shows base_dir."""
    with serve(base_dir) as address:
        yield address


@pytest.fixture(scope="session")
def panorama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that shows a run of every kind."""
    base = tmp_path_factory.mktemp("panorama")
    for kind, build in PANORAMA.items():
        build(base / kind)
    with serve(base) as address:
        yield address
