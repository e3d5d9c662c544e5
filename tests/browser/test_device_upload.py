"""Device in a browser; a trace that is chosen on the run list becomes a run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.support.serving import serve
from tests.support.traces import build_trace, training_steps


def _upload(page: Page, server: str, path: Path) -> None:
    page.goto(f"{server}/")
    page.set_input_files("#drop-files", str(path))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own: what is uploaded shall not show in the run list of other tests."""
    with serve(tmp_path_factory.mktemp("uploads")) as address:
        yield address


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "chosen.json"
    path.write_text(json.dumps(build_trace(training_steps())), encoding="utf-8")
    return path


def test_a_chosen_trace_opens_as_a_run_with_a_device(page: Page, server: str, trace: Path) -> None:
    _upload(page, server, trace)
    page.wait_for_url("**/runs/chosen**")
    page.goto(f"{server}/runs/chosen/device")
    assert page.locator("h2", has_text="Device 0: NVIDIA H100").count() == 1


def test_a_file_that_is_no_trace_is_refused_on_the_page(page: Page, server: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("x", encoding="utf-8")
    _upload(page, server, notes)
    assert "is not a trace" in page.locator(".drop-error").inner_text()
