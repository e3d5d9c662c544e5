"""Clicks and seconds from the list of runs to the answer: `python benchmarks/answer_times.py BASE_DIR RUN [rounds]`.

Each path is clicked as a person would, in Chromium, from the list of runs with a cold cache. The clock runs from the
first click until the words of the answer can be read and the charts in view are drawn. Prints the median.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.browser.conftest import CHROMIUM, FLAGS
from tests.browser.looking import wait_for_charts, wait_for_text
from tests.support.serving import serve

NAV = '.nav a:has-text("{}")'
PATHS: Sequence[tuple[str, Sequence[str], str]] = (
    ("what is the run bound by, what to change", (), "sure"),
    ("the evidence of the verdict", (".verdict-more a",), ""),
    ("which phase a step spends its time in", (NAV.format("Step trace"),), "Average step"),
    (
        "why step 1 was slow",
        (NAV.format("Step trace"), "#outliers-title >> xpath=../.. >> tbody a >> nth=0"),
        "Step 1:",
    ),
    (
        "that step on the timeline",
        (NAV.format("Step trace"), "#outliers-title >> xpath=../.. >> tbody a >> nth=1"),
        "Timeline",
    ),
    ("which operators take the time", (NAV.format("Operators"),), "Self time"),
    ("which stage of the loader is slow", (NAV.format("Data pipeline"), "text=Data processing"), "Limited by"),
    ("who used the processors", (NAV.format("Memory"),), "Processors"),
)


def walk(browser: Browser, address: str, run: str, clicks: Sequence[str], words: str) -> float:
    """Return the seconds from the click on the run to the answer."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.goto(address)
    begin = time.monotonic()
    page.click(f"table.runs a:has(:text-is('{run}'))")
    for click in clicks:
        page.click(click)
    wait_for_text(page, words)
    wait_for_charts(page)
    seconds = time.monotonic() - begin
    context.close()
    return seconds


def main() -> None:
    base_dir, run = Path(sys.argv[1]), sys.argv[2]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    with serve(base_dir) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        print(f"{'question':44s} {'clicks':>6s} {'seconds':>8s}")
        for question, clicks, words in PATHS:
            walk(browser, address, run, clicks, words)
            times = [walk(browser, address, run, clicks, words) for _ in range(rounds)]
            print(f"{question:44s} {1 + len(clicks):6d} {statistics.median(times):8.2f}")
        browser.close()


if __name__ == "__main__":
    main()
