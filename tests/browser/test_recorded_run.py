"""Every page of a run that was really recorded: the CNN on PNG files, read by two workers, with evaluation inside."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from collector.format.run import open_run
from profiler_server.diagnosis.judging import diagnose
from tests.support.serving import serve

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples/digits_cnn.py"
EPOCHS = 1


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The base dir of a run `digits`, recorded by the example script as a user would run it."""
    base = tmp_path_factory.mktemp("recorded")
    command = [sys.executable, str(SCRIPT), "--output", str(base / "digits"), "--epochs", str(EPOCHS)]
    subprocess.run(command, check=True, capture_output=True, timeout=300, cwd=tmp_path_factory.mktemp("pictures"))
    return base


@pytest.fixture(scope="module")
def address(recorded: Path) -> Iterator[str]:
    with serve(recorded) as address:
        yield address


@pytest.fixture(scope="module")
def step_count(recorded: Path) -> int:
    steps = open_run(recorded / "digits").frame("steps")
    count = int((steps.kind == "train").sum())
    assert count == EPOCHS * 47  # 1,497 pictures in batches of 32
    return count


def test_run_list_shows_the_run_as_complete(page: Page, address: str) -> None:
    page.goto(f"{address}/")
    row = page.get_by_role("row").filter(has_text="digits")
    expect(row).to_contain_text(re.compile("complete", re.IGNORECASE))
    row.get_by_role("link", name="digits").click()
    expect(page).to_have_url(re.compile(r"/runs/digits/"))


def test_overall_gives_the_verdict_and_phases_that_sum_to_the_step(page: Page, address: str, recorded: Path) -> None:
    page.goto(f"{address}/runs/digits/")
    said = diagnose(open_run(recorded / "digits"), 0).limit  # which one depends on how busy the machine was
    expect(page.locator("main h1, main h2").first).to_have_text(said)
    shares = [
        float(text) for text in re.findall(r"(\d+\.\d+) %", page.locator("main").inner_text().split("Whole step")[0])
    ]
    assert shares
    expect(page.locator("main")).to_contain_text("100.0 %")
    expect(page.locator("main")).to_contain_text("DigitFiles")
    for title in ("Step trace", "Operators", "Data pipeline", "Timeline"):
        expect(page.locator("main").get_by_role("heading", name=title, exact=True)).to_be_visible()


def test_step_trace_shows_a_picked_step_and_refuses_one_that_is_not_there(
    page: Page, address: str, step_count: int
) -> None:
    page.goto(f"{address}/runs/digits/steps?step=20")
    expect(page.locator("main")).to_contain_text("Step 20")
    expect(page.locator("main")).to_contain_text("SmallCnn")
    page.goto(f"{address}/runs/digits/steps?step={step_count + 1}")
    expect(page.locator("main")).to_contain_text(f"1 to {step_count}")
    expect(page.locator("main")).to_contain_text("Average step")


def test_operators_are_found_by_a_fuzzy_name(page: Page, address: str) -> None:
    page.goto(f"{address}/runs/digits/operators?group=operators&q=CONV")
    table = page.locator("main table").filter(has_text="Average")
    expect(table).to_contain_text("aten::mkldnn_convolution")
    expect(table).not_to_contain_text("max_pool2d")


def test_data_pipeline_names_the_transforms_and_the_workers(page: Page, address: str) -> None:
    page.goto(f"{address}/runs/digits/data?tab=processing")
    for text in ("Rotate", "Resize", "ToTensor", "Worker 0", "Worker 1"):
        expect(page.locator("main")).to_contain_text(text)
    page.goto(f"{address}/runs/digits/data?tab=interval")
    expect(page.locator("main")).to_contain_text(re.compile(r"empty", re.IGNORECASE))


def test_timeline_draws_and_finds_an_operator(page: Page, address: str) -> None:
    page.goto(f"{address}/runs/digits/timeline")
    page.wait_for_timeout(1000)
    expect(page.locator("main canvas").first).to_be_visible()
    box = page.get_by_role("searchbox").first
    box.fill("aten::mkldnn_convolution")
    box.press("Enter")
    expect(page.locator("main")).to_contain_text("aten::mkldnn_convolution")


def test_the_exported_timeline_is_what_perfetto_reads(page: Page, address: str) -> None:
    answer = page.request.get(f"{address}/api/v1/runs/digits/report")
    report = answer.json()
    assert report["run"]["state"] == "complete"
    phases = report["ranks"][0]["phases"]
    assert abs(sum(phase["share_frac"] for phase in phases) - 1) < 1e-9
    mean = report["ranks"][0]["steps"]["duration_ns"]["mean"]
    assert abs(sum(phase["mean_ns"] for phase in phases) - mean) < 1
