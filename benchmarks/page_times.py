"""Server time of every page of a run: `python benchmarks/page_times.py BASE_DIR RUN [requests]`.

Starts the server, and prints first, p50 and p95 per page in ms and the bytes sent. Only the process is warm at the
first request of a page.
"""

from __future__ import annotations

import sys
import time
import urllib.request
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.support.serving import serve

PAGES = (
    "",
    "steps",
    "steps?step=12",
    "operators",
    "operators?group=operators&q=conv",
    "operators?group=kernels",
    "data?tab=interval",
    "data?tab=processing",
    "memory",
    "memory?steps=10-40",
    "ranks",
    "ranks?map=wait",
    "ranks?sort=own&page=8",
    "timeline",
)


def measure_page(address: str, requests: int) -> tuple[list[float], int]:
    times_ms, size = [], 0
    for _ in range(requests):
        start = time.perf_counter()
        with urllib.request.urlopen(address) as answer:
            size = len(answer.read())
        times_ms.append(1e3 * (time.perf_counter() - start))
    return times_ms, size


def main() -> None:
    base_dir, run = Path(sys.argv[1]), sys.argv[2]
    requests = int(sys.argv[3]) if len(sys.argv) > 3 else 40
    with serve(base_dir) as address:
        print(f"{'page':40s} {'first':>8s} {'p50':>8s} {'p95':>8s} {'kB':>8s}")
        for path in ("/", *(f"/runs/{run}/{page}" for page in PAGES)):
            times_ms, size = measure_page(address + path, requests)
            p50, p95 = np.percentile(times_ms[1:], [50, 95])
            print(f"{path:40s} {times_ms[0]:8.1f} {p50:8.1f} {p95:8.1f} {size / 1e3:8.1f}")


if __name__ == "__main__":
    main()
