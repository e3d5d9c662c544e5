"""The timeline as a person uses it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.looking import wait_until
from tests.support.runs import RunPlan, build_run
from tests.support.serving import serve
from tests.unit.timeline.rows import build_slices_run, make_slice

LONG = "x<script>alert(1)</script>\u202e🔥" * 300


def wait_for(page: Page, condition: str) -> None:
    wait_until(page, f"() => {{ const viewer = document.getElementById('timeline')?.viewer; return {condition}; }}")


def open_page(page: Page, address: str) -> None:
    page.goto(address)
    wait_for(page, "viewer && viewer.timing.firstPaint > 0 && viewer.painter.missing === 0")


def reopen(page: Page) -> None:
    """Load the address that the viewer has written by now."""
    time.sleep(0.4)
    open_page(page, page.evaluate("location.href"))


def read_span(page: Page) -> tuple[float, float]:
    span: dict[str, float] = page.evaluate("() => document.getElementById('timeline').viewer.state.span")
    return span["t0"], span["t1"]


def press(page: Page, key: str) -> tuple[float, float]:
    page.keyboard.down(key)
    time.sleep(0.25)
    page.keyboard.up(key)
    time.sleep(0.15)
    return read_span(page)


def find_slice(page: Page, name: str) -> Any:
    """Return a point of the page where a slice of that name is drawn."""
    point = page.evaluate(
        """(name) => { const { viewer } = document.getElementById('timeline');
        const box = viewer.canvas.getBoundingClientRect();
        for (const row of viewer.state.rows) for (let x = 2; x < box.width; x += 2) {
          const y = row.y - viewer.scroller.scrollTop + 5;
          if (row.kind === 'lane' && viewer.hit(x, y)?.whole === name) return [box.x + x, box.y + y]; }
        return null; }""",
        name,
    )
    assert point is not None, name
    return point


def test_keys_zoom_and_pan(page: Page, server: str) -> None:
    open_page(page, f"{server}/runs/healthy/timeline")
    whole = read_span(page)
    zoomed = press(page, "w")
    assert zoomed[1] - zoomed[0] < 0.8 * (whole[1] - whole[0])
    right = press(page, "d")
    assert right[0] > zoomed[0]
    left = press(page, "a")
    assert left[0] < right[0]
    out = press(page, "s")
    assert out[1] - out[0] > left[1] - left[0]
    page.keyboard.press("0")
    time.sleep(0.1)
    assert read_span(page) == whole


def test_a_click_shows_the_details_of_a_slice(page: Page, server: str) -> None:
    open_page(page, f"{server}/runs/healthy/timeline")
    page.mouse.click(*find_slice(page, "aten::convolution_backward"))
    details = page.locator("#timeline-details")
    expect(details.get_by_role("heading", name="aten::convolution_backward")).to_be_visible()
    expect(details).to_contain_text("20.0 ms")
    expect(details).to_contain_text("the mean of all 3 slices of this name")
    page.keyboard.press("f")
    time.sleep(0.1)
    begin, end = read_span(page)
    assert 30e6 < end - begin < 50e6
    page.keyboard.press("Escape")
    expect(details).to_contain_text("Click a slice")


def test_search_counts_and_goes_through_the_matches_until_escape(page: Page, server: str) -> None:
    open_page(page, f"{server}/runs/healthy/timeline")
    page.keyboard.press("/")
    page.keyboard.type("forward")
    expect(page.locator("#timeline-search output")).to_have_text("40 matches")
    page.keyboard.press("Enter")
    expect(page.locator("#timeline-search output")).to_have_text("1 of 40 matches")
    page.keyboard.press("Enter")
    expect(page.locator("#timeline-search output")).to_have_text("2 of 40 matches")
    page.get_by_label("Previous match").click()
    page.get_by_label("Previous match").click()
    expect(page.locator("#timeline-search output")).to_have_text("40 of 40 matches")
    expect(page.locator("#timeline-details h3")).to_have_text("Forward")
    field = page.get_by_label("Search slices by name")
    field.press("Escape")
    expect(page.locator("#timeline-search output")).to_have_text("")
    expect(field).to_have_value("")
    expect(field).not_to_be_focused()


def test_the_address_holds_the_view(page: Page, server: str) -> None:
    open_page(page, f"{server}/runs/healthy/timeline")
    press(page, "w")
    page.mouse.click(*find_slice(page, "Backward"))
    expect(page.locator("#timeline-details h3")).to_have_text("Backward")
    time.sleep(0.4)
    span = read_span(page)
    open_page(page, page.url)
    expect(page.locator("#timeline-details h3")).to_have_text("Backward")
    assert read_span(page) == pytest.approx(span, abs=2)


def test_tracks_fold_and_other_ranks_open(page: Page, server: str) -> None:
    open_page(page, f"{server}/runs/ranks/timeline")
    page.get_by_role("button", name="Rank 2").click()
    expect(page.get_by_role("button", name="Worker 0")).to_have_count(2)
    expect(page.get_by_title("Worker 0: read")).to_have_count(2)
    page.get_by_role("button", name="Worker 0").first.click()
    expect(page.get_by_title("Worker 0: read")).to_have_count(1)


def test_the_download_holds_what_is_shown(page: Page, server: str, tmp_path: Path) -> None:
    open_page(page, f"{server}/runs/healthy/timeline")
    page.locator("#timeline-extent").select_option("all")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download JSON").click()
    assert waiting.value.suggested_filename == "healthy-rank0.json.gz"
    expect(page.locator("#timeline-told")).to_contain_text("Left out: ")


def test_single_letter_keys_can_be_switched_off(page: Page, server: str) -> None:
    open_page(page, f"{server}/runs/healthy/timeline")
    page.evaluate("() => localStorage.setItem('stepscope.keys', 'off')")
    before = read_span(page)
    assert press(page, "w") == before


def test_hostile_names_are_text(page: Page, tmp_path: Path) -> None:
    rows = [
        make_slice(0, 0, 1_000_000_000, name=LONG, args=json.dumps({LONG[:40]: LONG})),
        make_slice(1, 2_000_000_000, 5),
    ]
    build_slices_run(tmp_path / "hostile", rows, RunPlan(steps=2))
    with serve(tmp_path) as server:
        open_page(page, f"{server}/runs/hostile/timeline")
        page.get_by_label("Search slices by name").fill("<script>")
        page.keyboard.press("Enter")
        expect(page.locator("#timeline-details h3")).to_contain_text("<script>alert(1)")
        assert page.locator("#timeline-details script").count() == 0


def test_both_themes_draw_in_their_colours(page: Page, server: str) -> None:
    grounds = []
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        open_page(page, f"{server}/runs/healthy/timeline")
        # Below all rows: those of a heading have a ground of their own.
        lanes = "const lanes = document.getElementById('timeline-lanes');"
        pixel = f"() => {{ {lanes} return [...lanes.getContext('2d').getImageData(3, lanes.height - 3, 1, 1).data]; }}"
        grounds.append(tuple(page.evaluate(pixel)))
    assert grounds[0] == (255, 255, 255, 255)
    assert max(grounds[1][:3]) < 40


def test_a_pinned_track_stays_at_the_top_and_survives_a_reload(page: Page, server: str) -> None:
    open_page(page, f"{server}/runs/healthy/timeline")
    page.get_by_role("button", name="Pin worker queue to the top").press("Enter")
    pinned = page.locator("#timeline-pinned .track-label")
    expect(pinned).to_have_text(["worker queue"])
    page.locator("#timeline-lanes").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#timeline-details h3")).not_to_be_empty()
    page.keyboard.press("p")
    expect(pinned).to_have_count(2)
    reopen(page)
    expect(pinned).to_have_count(2)
    page.locator("#timeline-pinned").get_by_role("button", name="Unpin worker queue").click()
    expect(pinned).to_have_count(1)


def test_tracks_are_filtered_by_name_and_the_address_knows(page: Page, server: str) -> None:
    open_page(page, f"{server}/runs/healthy/timeline")
    page.get_by_label("Show only tracks whose name contains").fill("worker")
    expect(page.locator("#timeline-filtered")).to_contain_text("7 of")
    reopen(page)
    expect(page.locator("#timeline-labels .track-label:not(.track-group)")).to_have_count(7)
    page.get_by_label("Show only tracks whose name contains").fill("nothing like it")
    expect(page.locator("#timeline-filtered")).to_have_text("no track")


def test_all_ranks_unfold_and_fold_at_once(page: Page, server: str) -> None:
    open_page(page, f"{server}/runs/ranks/timeline")
    page.get_by_role("button", name="Unfold all").click()
    expect(page.get_by_role("button", name="Worker 0")).to_have_count(4)
    reopen(page)
    expect(page.get_by_role("button", name="Worker 0")).to_have_count(4)
    page.get_by_role("button", name="Fold all", exact=True).click()
    expect(page.locator("#timeline-labels .track-label")).to_have_count(4)


def test_a_double_click_zooms_to_the_slice(page: Page, server: str) -> None:
    open_page(page, f"{server}/runs/healthy/timeline")
    page.mouse.dblclick(*find_slice(page, "aten::convolution_backward"))
    wait_for(page, "viewer.state.span.t1 - viewer.state.span.t0 < 50e6")
    begin, end = read_span(page)
    assert end - begin > 30e6


def test_dragging_over_the_ruler_zooms_to_that_stretch(page: Page, server: str) -> None:
    open_page(page, f"{server}/runs/healthy/timeline")
    whole = read_span(page)
    box = page.locator("#timeline-ruler").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 10, steps=3)
    page.mouse.up()
    begin, end = read_span(page)
    assert end - begin == pytest.approx((whole[1] - whole[0]) / 4, rel=0.02)


def test_a_counter_tells_its_value_under_the_pointer(page: Page, server: str) -> None:
    open_page(page, f"{server}/runs/healthy/timeline?tracks=queue")
    box = page.locator("#timeline-lanes").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    expect(page.locator("#timeline-hover")).to_contain_text("worker queue: ")


def read_names(page: Page, boxes: list[Any]) -> Any:
    """Return the pixels of these boxes, without the rows' edges."""
    return page.evaluate(
        """(boxes) => { const { canvas, context } = document.getElementById('timeline').viewer.painter;
        return boxes.map(({ x, y, width, height }) => [...context.getImageData(x, y + 3, width, height - 6).data]); }""",
        boxes,
    )


def test_an_arrow_passes_behind_the_names_of_slices(page: Page, tmp_path: Path) -> None:
    between = [make_slice(n, 0, 2_000_000_000, name=f"in the way {n} " * 20, track=n) for n in range(2, 6)]
    launch = make_slice(0, 200_000_000, 400_000_000, name="cudaLaunchKernel", category="runtime")
    kernel = make_slice(9, 500_000_000, 900_000_000, name="gemm", category="kernel", track=8, launched_by=0)
    build_slices_run(tmp_path / "linked", [*between, launch, kernel], RunPlan(steps=2))
    with serve(tmp_path) as server:
        open_page(page, f"{server}/runs/linked/timeline")
        page.mouse.click(*find_slice(page, "gemm"))
        expect(page.locator("#timeline-details")).to_contain_text("launched by")
        wait_for(page, "viewer.painter.texts.filter((box) => box.width > 500).length === 4")
        boxes = page.evaluate("() => document.getElementById('timeline').viewer.painter.texts")
        with_arrow = read_names(page, boxes)
        page.keyboard.press("Escape")
        expect(page.locator("#timeline-details")).to_contain_text("Click a slice")
        page.wait_for_timeout(200)
        assert read_names(page, boxes) == with_arrow


def test_a_live_run_grows_without_moving_what_is_looked_at(page: Page, tmp_path: Path) -> None:
    build_run(tmp_path / "live", RunPlan(steps=10, state="recording"))
    with serve(tmp_path) as server:
        open_page(page, f"{server}/runs/live/timeline")
        page.mouse.dblclick(*find_slice(page, "Step 4"))
        expect(page.locator("#timeline-details h3")).to_have_text("Step 4")
        page.wait_for_timeout(300)
        before = page.evaluate(
            "() => { const { state } = document.getElementById('timeline').viewer; return [state.whole, state.span]; }"
        )
        totals = page.locator(".totals").inner_text()
        build_run(tmp_path / "live", RunPlan(steps=30, state="recording"))
        wait_for(page, f"viewer.state.whole > {2 * before[0]}")
        expect(page.locator(".totals")).not_to_have_text(totals, use_inner_text=True)
        expect(page.get_by_role("button", name="Show new data")).to_be_hidden()
        assert page.evaluate("() => document.getElementById('timeline').viewer.state.span") == before[1]
        expect(page.locator("#timeline-details h3")).to_have_text("Step 4")
        selected = "document.getElementById('timeline').viewer.state.selected"
        found = page.evaluate(
            f"async () => (await document.getElementById('timeline').viewer.ask('slice', {{ id: {selected}.id }})).whole"
        )
        assert found == "Step 4"
        page.goto("about:blank")  # it looks at the run until then, and the server ends here
