"""Times of the timeline of a run made by make_slices.py: build, tiles, search, first paint, frames a second.

    python benchmarks/timeline_tiles.py BASE_DIR RUN [--keep]

Prints one JSON object. Tile times are the server's, over HTTP on loopback; frames are counted in headless Chromium.
`--keep` uses the existing cache instead of building it again.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from playwright.sync_api import Page, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))
from collector.format.run import open_run
from profiler_server.timeline.cache import CACHE_FOLDER
from tests.support.serving import serve

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
OPEN_REPEATS = 5
HOLD_S = 2.0
# The window of each pan, as a share of the whole; more slices are in view the wider it is.
WINDOWS = {"whole": 0.98, "tenth": 0.1, "hundredth": 0.01, "raw": 0.0005}
COUNT_FRAMES = """() => { window.frameTimes = []; let last = 0; window.counting = true;
  const note = (now) => { if (last) frameTimes.push(now - last); last = now; if (counting) requestAnimationFrame(note); };
  requestAnimationFrame(note); viewer().timing.draws.length = 0; viewer().store.times.length = 0; }"""


def percentiles(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    return {"p50": round(float(np.percentile(values, 50)), 1), "p95": round(float(np.percentile(values, 95)), 1)}


def wait_for(page: Page, condition: str, limit_s: float = 120.0) -> None:
    deadline = time.monotonic() + limit_s
    while not page.evaluate(condition):
        if time.monotonic() > deadline:
            raise SystemExit(f"{condition} did not come true in {limit_s} s")
        time.sleep(0.02)


def fetch(address: str) -> tuple[float, bytes]:
    began = time.perf_counter()
    with urllib.request.urlopen(address) as answer:
        body = answer.read()
    return 1e3 * (time.perf_counter() - began), body


def measure_build(api: str) -> tuple[float, dict[str, Any]]:
    began = time.perf_counter()
    while True:
        _, body = fetch(f"{api}/meta")
        meta: dict[str, Any] = json.loads(body)
        if "building" not in meta:
            return time.perf_counter() - began, meta
        time.sleep(0.1)


def measure_tiles(api: str, meta: dict[str, Any]) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    found: dict[str, Any] = {}
    for level in range(meta["rawLevel"], meta["topLevel"] + 1):
        last = meta["span"] >> (level + meta["tileBits"])
        times, sizes = [], []
        for number in rng.integers(0, last + 1, 30).tolist():
            # Without the stamp in the address nothing between here and the tile may keep it.
            ms, body = fetch(f"{api}/tile?level={level}&number={number}")
            times.append(ms)
            sizes.append(len(body))
        found[str(level)] = {**percentiles(times), "mean_kb": round(float(np.mean(sizes)) / 1e3)}
    return found


def measure_search(api: str) -> dict[str, Any]:
    return {
        q: percentiles([fetch(f"{api}/search?q={q}&start={n}")[0] for n in range(20)])
        for q in ("nccl", "aten::add", "a")
    }


def measure_first_paint(page: Page, address: str) -> dict[str, float]:
    times = []
    for _ in range(OPEN_REPEATS):
        page.goto("about:blank")
        page.goto(address)
        wait_for(page, "() => (document.getElementById('timeline')?.viewer?.timing.firstPaint ?? 0) > 0")
        times.append(float(page.evaluate("document.getElementById('timeline').viewer.timing.firstPaint")))
    return percentiles(times)


def measure_pan(page: Page, share: float) -> dict[str, Any]:
    page.evaluate("window.viewer = () => document.getElementById('timeline').viewer")
    page.evaluate(
        f"(() => {{ const w = viewer().state.whole; viewer().show({{ t0: w * 0.4 * (1 - {share}), t1: w * (0.4 + 0.6 * {share}) }}); }})()"
    )
    wait_for(page, "() => viewer().painter.missing === 0")
    page.evaluate(COUNT_FRAMES)
    page.keyboard.down("d")
    time.sleep(HOLD_S)
    page.keyboard.up("d")
    seen = page.evaluate(
        "() => { counting = false; return { frames: frameTimes, draws: viewer().timing.draws, tiles: viewer().store.times,"
        " slices: viewer().painter.strips.painted }; }"
    )
    frames = seen["frames"]
    return {
        "slices": seen["slices"],
        "fps": round(1e3 * len(frames) / sum(frames), 1),
        "frame_ms": percentiles(frames),
        "script_ms": percentiles(seen["draws"]),
        "tile_fetch_ms": percentiles(seen["tiles"]),
    }


def main(base_dir: Path, run: str, keep: bool) -> None:
    if not keep:
        shutil.rmtree(open_run(base_dir / run).rank(0).folder / CACHE_FOLDER, ignore_errors=True)
    with serve(base_dir) as server, watch_server() as memory, sync_playwright() as playwright:
        api = f"{server}/api/v1/runs/{run}/timeline"
        build_s, meta = measure_build(api)
        result: dict[str, Any] = {"slices": meta["slices"], "build_s": round(build_s, 1)}
        result |= {"build_memory": dict(memory)}
        memory.clear()
        result |= {"tile_ms": measure_tiles(api, meta), "search_ms": measure_search(api)}
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        page = browser.new_page(viewport={"width": 1600, "height": 900})
        result["first_paint_ms"] = measure_first_paint(page, f"{server}/runs/{run}/timeline")
        result["pan"] = {name: measure_pan(page, share) for name, share in WINDOWS.items()}
        browser.close()
        result["memory"] = dict(memory)
    print(json.dumps(result, indent=1))


@contextmanager
def watch_server() -> Iterator[dict[str, float]]:
    """Yield the most memory that the server has held, in MB, under two names: its own memory, and resident memory with
    the pages of mapped files."""
    most: dict[str, float] = {}
    servers = [c for c in psutil.Process(os.getpid()).children() if "profiler_server.cli" in c.cmdline()]
    ended = threading.Event()

    def look() -> None:
        while servers and not ended.wait(0.05):
            used = servers[0].memory_info()
            for name, size in (("resident_mb", used.rss), ("own_mb", used.rss - used.shared)):
                most[name] = max(most.get(name, 0.0), round(size / 1e6, 1))

    watching = threading.Thread(target=look, daemon=True)
    watching.start()
    yield most
    ended.set()
    watching.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], "--keep" in sys.argv)
