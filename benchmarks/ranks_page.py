"""Time the Ranks page of a job of many ranks: `python benchmarks/ranks_page.py --ranks 1024 [--steps 500] [--requests
60]`.

Makes the run: steps, collectives and samples of a minute for each rank. Prints, each with the load of the machine:

- the time of the first answer and until the first view is whole, for a server without kept results;
- the same for a new server with the kept results;
- p50 and p95 of the known page: the same page again, and other sort orders, which are made anew;
- the time of `/metrics`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from collector.format import parts
from collector.format.schema import layout
from tests.support.jobs import JobPlan, write_job
from tests.support.serving import serve

SORTS = ("rank", "-rank", "own", "-own", "step", "-step", "blame", "-blame", "data_wait", "-data_wait")
HALF_SECONDS = 120


def build(path: Path, ranks: int, steps: int) -> Path:
    plan = JobPlan(ranks=ranks, steps=steps, slow=(ranks // 2,), slow_frac=0.2, ranks_per_host=8)
    write_job(path, plan)
    whole = None
    for rank in range(ranks):
        target = layout.table_file(layout.rank_path(path, rank), "resources")
        if whole is None:
            parts.write_table(parts.build_table_from_rows("resources", list_samples()), target)
            whole = target
        else:
            shutil.copy(whole, target)
    return path


def list_samples() -> list[dict[str, object]]:
    metrics = (
        ("process", "run_queue_frac"),
        ("process", "memory_bytes"),
        ("host", "cpu_frac"),
        ("host", "memory_frac"),
    )
    return [
        {"start_ns": 500_000_000 * at, "source": source, "metric": metric, "value": 0.01 * at}
        for at in range(HALF_SECONDS)
        for source, metric in metrics
    ]


def ask(address: str) -> tuple[float, str]:
    begun_s = time.perf_counter()
    with urllib.request.urlopen(address, timeout=600) as answer:
        text = answer.read().decode()
    return time.perf_counter() - begun_s, text


def view_first(address: str) -> None:
    """Request the page until it is whole, as a browser does, but with shorter pauses."""
    begun_s = time.perf_counter()
    first_s, text = ask(f"{address}/runs/job/ranks")
    slowest_s = first_s
    while 'data-part="ranks" data-pending' in text:
        time.sleep(0.1)
        seconds, text = ask(f"{address}/runs/job/ranks")
        slowest_s = max(slowest_s, seconds)
    print(
        f"whole after {time.perf_counter() - begun_s:6.2f} s, first answer {first_s:5.2f} s, slowest {slowest_s:5.2f} s"
    )


def measure(what: str, addresses: list[str]) -> None:
    times_ms = [1e3 * ask(address)[0] for address in addresses]
    p50, p95 = np.percentile(times_ms, [50, 95])
    print(f"{what:28s} {say_load()} p50 {p50:7.1f} ms, p95 {p95:7.1f} ms")


def say_load() -> str:
    return f"(load {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores)"


def run(base: Path, requests: int) -> None:
    for what in ("first view, nothing kept", "first view, ranks kept"):
        with serve(base) as address:
            ask(f"{address}/")
            print(f"{what:28s} {say_load()} ", end="", flush=True)
            view_first(address)
            if "nothing" in what:
                continue
            pages = f"{address}/runs/job/ranks"
            anew = [f"{pages}?sort={SORTS[at % len(SORTS)]}&map=step&page={at}" for at in range(requests)]
            measure("the same page", [pages] * requests)
            measure("made anew", anew)
            measure("another page of the run", [f"{address}/runs/job/steps"] * requests)
            measure("metrics", [f"{address}/metrics"] * 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument(
        "--keep", type=Path, help="make the run in this folder and leave it there, or use the one there"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = given.keep or Path(folder)
        base.mkdir(parents=True, exist_ok=True)
        if not (base / "job").exists():
            begun_s = time.perf_counter()
            build(base / "job", given.ranks, given.steps)
            print(f"{given.ranks} ranks of {given.steps} steps made in {time.perf_counter() - begun_s:.1f} s")
        for kept in base.glob("job/profiler/rank_*/.results"):
            shutil.rmtree(kept)
        run(base, given.requests)


if __name__ == "__main__":
    main()
