"""The first list of many runs: `python benchmarks/many_runs.py [RUN] [runs] [repeats]`.

Copies a run (by default a small run built here) 2,000 times under different names into ten folders. Starts a server and
waits until its app is loaded. Prints the seconds to the first page without kept summaries, until all figures are there,
to the first page of the next server with kept summaries, and to the second page of that server.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.server_start import find_port, wait_for_port
from collector.format.schema import layout
from tests.support.runs import build_run

MARK_S = 1.0
NAMES = ("digits", "bert-small", "resnet50", "vit", "gpt-nano")
FILLED_LIMIT_S = 300.0


def copy_runs(run: Path, base_dir: Path, count: int) -> None:
    """Copy a run `count` times, each copy with its own id, name and time."""
    manifest = json.loads(layout.run_file(run).read_text("utf-8"))
    for number in range(count):
        target = base_dir / f"team-{number % 10}" / f"{NAMES[number % len(NAMES)]}-{number:04d}"
        shutil.copytree(layout.profiler_path(run), layout.profiler_path(target), ignore=shutil.ignore_patterns(".*"))
        own = {**manifest, "id": target.name, "name": target.name}
        own["created_unix_ns"] = manifest["created_unix_ns"] + number * 60 * 10**9
        layout.run_file(target).write_text(json.dumps(own), "utf-8")


@contextmanager
def serve_loaded(base_dir: Path) -> Iterator[str]:
    """Start a server, and yield its address once its app answers, before any request for the list."""
    port = find_port()
    command = [sys.executable, "-m", "profiler_server.cli", "--summary-base-dir", str(base_dir), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        wait_for_port(port, time.perf_counter())
        address = f"http://127.0.0.1:{port}"
        read(f"{address}/api/v1/health")
        yield address
    finally:
        process.terminate()
        process.wait(10)


def read(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=120) as answer:
        body: bytes = answer.read()
    return body


def time_page(address: str) -> float:
    start = time.perf_counter()
    read(f"{address}/")
    return time.perf_counter() - start


def time_filling(address: str) -> float:
    """Return the seconds until every run of the list has its figures."""
    start = time.perf_counter()
    while time.perf_counter() - start < FILLED_LIMIT_S:
        states = [run["state"] for page in (1, 2, 3, 4) for run in list_page(address, page)]
        if states and None not in states:
            return time.perf_counter() - start
        time.sleep(0.1)
    raise TimeoutError(f"the list is not filled after {FILLED_LIMIT_S:.0f} s")


def list_page(address: str, page: int) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(read(f"{address}/api/v1/runs?page_size=500&page={page}"))["runs"]
    return found


def forget_summaries(base_dir: Path) -> None:
    for file in base_dir.rglob(".summary*"):
        file.unlink()


def main() -> None:
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    repeats = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    with tempfile.TemporaryDirectory(prefix="stepscope-runs-") as folder:
        source = Path(sys.argv[1]) if len(sys.argv) > 1 else build_run(Path(folder) / "one")
        base_dir = Path(folder) / "runs"
        copy_runs(source, base_dir, count)
        measured: dict[str, list[float]] = {"nothing kept": [], "all filled": [], "summaries kept": [], "again": []}
        for _ in range(repeats):
            forget_summaries(base_dir)
            with serve_loaded(base_dir) as address:
                measured["nothing kept"].append(time_page(address))
                measured["all filled"].append(time_filling(address))
            with serve_loaded(base_dir) as address:
                measured["summaries kept"].append(time_page(address))
                measured["again"].append(time_page(address))
    for name, times in measured.items():
        print(f"{name:16s} {statistics.median(times):7.2f} s (slowest of {repeats}: {max(times):.2f} s)")
    print(
        f"the mark with summaries kept is {MARK_S} s: {'met' if max(measured['summaries kept']) < MARK_S else 'missed'}"
    )


if __name__ == "__main__":
    main()
