"""Several ranks on one timeline, as a person compares them; and names that stand beside their lanes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page, expect

from collector.format import parts
from collector.format.schema import layout
from tests.browser.test_timeline import find_slice, open_page, wait_for
from tests.support.jobs import JobPlan, write_job
from tests.support.runs import RunPlan, build_run
from tests.support.serving import serve

HOUR_NS = 3_600_000_000_000


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    base = tmp_path_factory.mktemp("job")
    plan = JobPlan(ranks=4, steps=24, slow=(2,), slow_frac=0.3, ranks_per_host=1, apart_ns=HOUR_NS, drift=2e-5)
    write_job(base / "job", plan)
    with serve(base) as address:
        yield f"{address}/runs/job"


def test_ranks_whose_clocks_are_hours_apart_leave_a_collective_together(page: Page, job: str) -> None:
    page.goto(f"{job}/ranks")
    page.get_by_role("link", name="Timeline of these ranks").click()
    wait_for(page, "viewer && viewer.state.sources.size === 3 && viewer.painter.missing === 0")
    expect(page.locator("#timeline-clocks")).to_contain_text("The clocks agree within")
    expect(page.locator("#timeline-labels")).to_contain_text("Rank 2")
    expect(page.locator("#timeline-labels .track-rank")).to_have_count(3)
    expect(page.locator(".timeline-critical")).to_be_hidden()
    page.mouse.click(*find_slice(page, "allreduce"))
    expect(page.locator("#timeline-details h3")).to_have_text("allreduce")


COMPARE_ROWS = """() => { const { viewer } = document.getElementById('timeline');
  const top = viewer.canvas.getBoundingClientRect().top;
  const apart = [];
  for (const [id, rows, scrolled] of [['labels', viewer.state.rows, viewer.scroller.scrollTop], ['pinned', viewer.state.pinned, 0]]) {
    const labels = document.getElementById(`timeline-${id}`).children;
    rows.filter((row) => row.label).forEach((row, i) => {
      const box = labels[i].getBoundingClientRect();
      apart.push(Math.abs(box.top - (top + row.y - scrolled)), Math.abs(box.height - Math.max(row.height, 24))); });
  }
  const { canvas } = viewer;
  return [Math.max(...apart), canvas.height / devicePixelRatio - canvas.getBoundingClientRect().height]; }"""


def test_names_stand_beside_their_lanes_wherever_one_scrolls(page: Page, server: str) -> None:
    open_page(page, f"{server}/runs/ranks/timeline?ranks=0,1,2")
    wait_for(page, "viewer.state.sources.size === 3 && viewer.painter.missing === 0")
    page.locator(".track-pin").first.evaluate("button => button.click()")
    for height in (900, 620, 1500):
        page.set_viewport_size({"width": 1400, "height": height})
        for part in (0, 0.5, 1):
            page.evaluate(
                "part => { const { scroller } = document.getElementById('timeline').viewer;"
                "scroller.scrollTop = part * scroller.scrollHeight; }",
                part,
            )
            wait_for(page, "viewer.frame === 0 && viewer.canvas.clientHeight === viewer.scroller.clientHeight")
            apart, stretched = page.evaluate(COMPARE_ROWS)
            assert apart < 0.6, (height, part)
            assert abs(stretched) < 0.6, (height, part)


def test_ranks_are_chosen_in_a_field_and_stay_in_the_address(page: Page, job: str) -> None:
    open_page(page, f"{job}/timeline")
    expect(page.locator("#timeline-clocks")).to_be_hidden()
    page.get_by_label("Ranks on one clock").fill("3,1")
    page.get_by_role("button", name="Show together").click()
    wait_for(page, "viewer && viewer.state.sources.size === 2 && viewer.painter.missing === 0")
    assert page.evaluate("() => document.getElementById('timeline').viewer.state.ranks") == [3, 1]
    assert "ranks=3%2C1" in page.url or "ranks=3,1" in page.url
    expect(page.locator("#timeline-clocks")).to_contain_text("Times are those of rank 3; shifted: rank 1 by")


@pytest.fixture
def nested(tmp_path: Path) -> Iterator[str]:
    """Two ranks whose operators, in steps 10 to 12, call others."""
    run = build_run(tmp_path / "nested", RunPlan(ranks=2))
    for rank in range(2):
        file = layout.table_file(layout.rank_path(run, rank), "slices")
        rows = pq.read_table(file).to_pylist()
        inner = [{**row, "depth": row["depth"] + 1} for row in rows]
        parts.write_table(parts.build_table_from_rows("slices", [*rows, *inner]), file)
    with serve(tmp_path) as address:
        yield f"{address}/runs/nested"


def test_tracks_with_nothing_in_view_open_flat(page: Page, nested: str) -> None:
    threads = "viewer.state.rows.filter((row) => row.track?.kind === 'thread' && row.lanes > 1 && row.label)"
    open_page(page, f"{nested}/timeline?ranks=0,1&step=30")
    wait_for(page, f"viewer.state.sources.size === 2 && {threads}.length === 2 && {threads}.every((row) => row.folded)")
    open_page(page, f"{nested}/timeline?ranks=0,1&step=11")
    wait_for(page, "viewer.state.sources.size === 2 && viewer.painter.missing === 0")
    page.wait_for_url("**t0=**")
    wait_for(page, f"{threads}.length === 2 && !{threads}.some((row) => row.folded)")
