"""Frames a second while the timeline is panned with 20,000 and with 100,000 slices in view.

    python benchmarks/timeline_frames.py [--slices 20_000,100_000]

Makes a run of 96 threads that are busy all the time. Opens it in headless Chromium without a GPU, and zooms until every
frame paints that number of slices. Counts frames through requestAnimationFrame: while D is held down, and while the
pointer drags. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))
from collector.format import parts
from collector.format.schema import layout
from collector.format.schema.manifest import RankManifest, RunManifest, Signal, encode_manifest
from tests.support.serving import serve

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
THREADS, SLICES_EACH, PERIOD_NS = 96, 60_000, 33_000
NAMES = [f"aten::operator_{i}" for i in range(200)]
VIEWPORTS = ((20_000, 1600, 900), (1 << 60, 2560, 1600))
HOLD_S = 3.0
VIEWER = "document.getElementById('timeline').viewer"
BEGIN = f"""() => {{ const w = window; w.frames_ = []; w.counting = true; let last = 0;
  const note = (now) => {{ if (last) w.frames_.push([now - last, {VIEWER}.painter.strips.painted]); last = now;
    if (w.counting) requestAnimationFrame(note); }};
  requestAnimationFrame(note); {VIEWER}.timing.draws.length = 0; }}"""


def make_run(path: Path) -> None:
    """Write a run whose threads run one slice after the other."""
    rng = np.random.default_rng(11)
    track = np.repeat(np.arange(THREADS), SLICES_EACH)
    start = np.tile(np.arange(SLICES_EACH) * PERIOD_NS, THREADS) + rng.integers(0, 6_000, track.size)
    order = np.argsort(start, kind="stable")
    names = rng.integers(0, len(NAMES), track.size).astype(np.int32)
    columns: dict[str, Any] = {
        "id": np.arange(track.size),
        "track": track[order],
        "depth": np.zeros(track.size, np.int32),
        "start_ns": start[order],
        "duration_ns": rng.integers(8_000, 26_000, track.size),
        "name": pa.DictionaryArray.from_arrays(names, NAMES),
        "category": ["operator"] * track.size,
    }
    folder = layout.rank_path(path, 0)
    folder.mkdir(parents=True)
    parts.write_table(parts.build_table("slices", columns), layout.table_file(folder, "slices"))
    tracks = [
        {"track": i, "kind": "thread", "name": f"thread {i}", "process": "python", "order": i, "unit": ""}
        for i in range(THREADS)
    ]
    parts.write_table(parts.build_table_from_rows("tracks", tracks), layout.table_file(folder, "tracks"))
    now = time.time_ns()
    rank = RankManifest(0, "host", 1, "imported", now, now, signals=(Signal("window", "on"),))
    layout.rank_file(path, 0).write_text(encode_manifest(rank), encoding="utf-8")
    run = RunManifest(path.name, path.name, now, now, "kineto", 1, "host")
    layout.run_file(path).write_text(encode_manifest(run), encoding="utf-8")


def wait_for(page: Page, condition: str, limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    while not page.evaluate(
        f"() => {{ const viewer = document.getElementById('timeline')?.viewer; return {condition}; }}"
    ):
        if time.monotonic() > deadline:
            raise SystemExit(f"{condition} did not come true in {limit_s} s")
        time.sleep(0.02)


def zoom_to(page: Page, slices: int) -> int:
    """Choose the window in which about `slices` slices are painted; return how many are painted."""
    width_ns, painted = 20e6, 0
    for _ in range(12):
        page.evaluate(f"() => {VIEWER}.show({{ t0: 0.3e9, t1: 0.3e9 + {width_ns} }})")
        time.sleep(0.15)
        wait_for(page, "viewer.painter.missing === 0 && viewer.frame === 0")
        painted = int(page.evaluate(f"() => {VIEWER}.painter.strips.painted"))
        if abs(painted - slices) < 0.02 * slices:
            break
        width_ns *= slices / max(painted, 1)
    return painted


def count_frames(page: Page) -> dict[str, Any]:
    page.evaluate("() => { window.counting = false; }")
    seen = page.evaluate(f"() => ({{ frames: window.frames_, draws: {VIEWER}.timing.draws }})")
    frames = np.array([ms for ms, _ in seen["frames"]])
    return {
        "fps": round(1e3 * frames.size / float(frames.sum()), 1),
        "frame_ms_p95": round(float(np.percentile(frames, 95)), 1),
        "frame_ms_max": round(float(frames.max()), 1),
        "script_ms_p50": round(float(np.percentile(seen["draws"], 50)), 1),
        "script_ms_p95": round(float(np.percentile(seen["draws"], 95)), 1),
        "drawn_frames": len(seen["draws"]),
        "slices_min": int(min(painted for _, painted in seen["frames"])),
    }


def pan_by_key(page: Page) -> dict[str, Any]:
    page.evaluate(BEGIN)
    page.keyboard.down("d")
    time.sleep(HOLD_S)
    page.keyboard.up("d")
    return count_frames(page)


def pan_by_drag(page: Page) -> dict[str, Any]:
    box = page.locator("#timeline-lanes").bounding_box()
    assert box is not None
    x, y = box["x"] + 0.9 * box["width"], box["y"] + 0.5 * box["height"]
    page.mouse.move(x, y)
    page.mouse.down()
    page.evaluate(BEGIN)
    until = time.monotonic() + HOLD_S
    while time.monotonic() < until:
        x -= 4
        page.mouse.move(max(x, box["x"] + 5), y)
        if x < box["x"] + 5:
            break
    found = count_frames(page)
    page.mouse.up()
    return found


def measure(page: Page, address: str, slices: int) -> dict[str, Any]:
    _, width, height = next(view for view in VIEWPORTS if slices <= view[0])
    page.set_viewport_size({"width": width, "height": height})
    page.goto(address)
    wait_for(page, "viewer && viewer.timing.firstPaint > 0")
    found: dict[str, Any] = {"viewport": [width, height], "slices": zoom_to(page, slices)}
    found["key"] = pan_by_key(page)
    zoom_to(page, slices)
    return found | {"drag": pan_by_drag(page)}


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--slices", default="20_000,100_000")
    wanted = [int(text.replace("_", "")) for text in reader.parse_args().slices.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        make_run(Path(folder) / "dense")
        with serve(Path(folder)) as server, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            page = browser.new_page()
            found = {str(slices): measure(page, f"{server}/runs/dense/timeline", slices) for slices in wanted}
            browser.close()
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
