"""Import a job of many ranks on a Dask cluster of this machine, and compare the report with the planted faults.

    python benchmarks/make_job.py trace.json.gz job --ranks 1024
    python benchmarks/dask_ranks.py job --ranks 64 256 1024 --workers 1 2 [--kill] [--keep RUNS]

As a control, one process first imports some files, one after the other. Then `stepscope import --dask` reads the
first ranks of the job, with a scheduler and workers of one thread each. Prints seconds, seconds for each rank,
throughput per core relative to the control, and the most memory of a worker. `--kill` ends one worker with SIGKILL when
half of the files are read. For the whole job, prints the report beside the planted faults.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.make_job import TRUTH
from collector.format.run import open_run
from collector.traces.importing import import_trace
from profiler_server.report.all_ranks import report_judgement, report_slow_call

CONTROLS = 6
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
QUIET = ("--no-dashboard", "--host", "127.0.0.1")


@contextlib.contextmanager
def start_cluster(folder: Path, workers: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Start a scheduler and workers of one thread each. Yield the scheduler's address and the workers."""
    contact = folder / "scheduler.json"
    dask = (sys.executable, "-m", "dask")
    logs = (folder / "cluster.log").open("wb")
    scheduler = start([*dask, "scheduler", *QUIET, "--port", "0", "--scheduler-file", str(contact)], logs)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        wait_for(contact.exists)
        place = ("--scheduler-file", str(contact), "--local-directory", str(folder))
        usual = (*place, "--nthreads", "1", "--memory-limit", "0", "--no-nanny")
        processes += [start([*dask, "worker", *QUIET, *usual], logs) for _ in range(workers)]
        address = str(json.loads(contact.read_text(encoding="utf-8"))["address"])
        wait_for(lambda: count_workers(folder) >= workers)
        yield address, processes
    finally:
        for process in (*processes, scheduler):
            process.kill()
            process.wait()
        logs.close()
        contact.unlink(missing_ok=True)


def start(command: list[str], logs: BinaryIO) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=logs, stderr=logs)


def count_workers(folder: Path) -> int:
    return (folder / "cluster.log").read_text(encoding="utf-8").count("Register worker")


def wait_for(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    end_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end_s:
            raise SystemExit("the cluster does not start; see cluster.log")
        time.sleep(0.05)


def choose_ranks(job: Path, folder: Path, ranks: int) -> Path:
    """Return a folder with the files of the first ranks."""
    chosen = folder / f"job{ranks}"
    if not chosen.exists():
        chosen.mkdir()
        for rank in range(ranks):
            (chosen / f"rank{rank}.json.gz").symlink_to((job / f"rank{rank}.json.gz").resolve())
    return chosen


def measure_control(job: Path, folder: Path) -> tuple[float, float]:
    """Return the median seconds and CPU seconds of one file, imported by this process alone."""
    found = []
    for rank in range(CONTROLS):
        begun_s, begun_cpu_s = time.perf_counter(), time.process_time()
        import_trace(job / f"rank{rank}.json.gz", folder / f"control{rank}")
        found.append((time.perf_counter() - begun_s, time.process_time() - begun_cpu_s))
        shutil.rmtree(folder / f"control{rank}")
    seconds, cpu_s = zip(*found[1:], strict=True)  # the first one loads what all need
    return statistics.median(seconds), statistics.median(cpu_s)


def read_status(process: subprocess.Popen[bytes], name: str) -> float:
    text = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
    return float(text.partition(f"\n{name}:")[2].split()[0]) / 1024


def read_cpu_s(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def kill_when_half_is_done(runs: Path, ranks: int, victim: subprocess.Popen[bytes]) -> None:
    end_s = time.monotonic() + 600
    while time.monotonic() < end_s and victim.poll() is None:
        if sum(1 for _ in runs.glob(".job*/**/steps.parquet")) >= ranks // 2:
            victim.send_signal(signal.SIGKILL)
            print(f"killed worker {victim.pid}", flush=True)
            return
        time.sleep(0.2)


def import_ranks(job: Path, runs: Path, address: str) -> float:
    command = [sys.executable, "-m", "profiler_server", "import", str(job), "--summary-base-dir", str(runs)]
    begun_s = time.perf_counter()
    subprocess.run([*command, "--dask", address], env=ENVIRONMENT, check=True)
    return time.perf_counter() - begun_s


def compare(job: Path, run_path: Path) -> None:
    """Print the report on all ranks beside the planted faults."""
    truth, warnings = json.loads((job / TRUTH).read_text(encoding="utf-8")), []
    run = open_run(run_path)
    begun_s = time.perf_counter()
    judged, slow = report_judgement(run, warnings), report_slow_call(run)
    print(f"judged in {time.perf_counter() - begun_s:.1f} s")
    print(f"planted: {json.dumps(truth)}")
    print(f"judgement: {judged and judged['sentence']} {judged and judged['evidence']}")
    print(f"slow collective: {slow and slow['sentence']} {warnings or ''}")
    if judged is not None:
        found = judged["straggler"]
        print(f"rank {found['rank']}, gain {found['gain_ns'] / 1e6:.3f} ms, planted {truth['gain_ms']:.3f} ms")


def run(job: Path, given: argparse.Namespace, folder: Path) -> None:
    control_s, control_cpu_s = measure_control(job, folder)
    print(f"control: {control_s:.3f} s a file by one process, {control_cpu_s:.3f} s of a core", flush=True)
    runs = given.keep or folder / "runs"
    for workers in given.workers:
        with start_cluster(folder, workers) as (address, processes):
            for ranks in given.ranks:
                target = runs / f"job{ranks}"
                shutil.rmtree(target, ignore_errors=True)
                source = choose_ranks(job, folder, ranks)
                before_s = [read_cpu_s(one) for one in processes]
                if given.kill:
                    watch = (runs, ranks, processes[-1])
                    threading.Thread(target=kill_when_half_is_done, args=watch, daemon=True).start()
                seconds = import_ranks(source, runs, address)
                alive = [(one, s) for one, s in zip(processes, before_s, strict=True) if one.poll() is None]
                cpu_s = sum(read_cpu_s(one) - s for one, s in alive)
                per_core = ranks * control_s / seconds / min(workers, os.cpu_count() or 1)
                most, now = (max(read_status(one, name) for one, _ in alive) for name in ("VmHWM", "VmRSS"))
                print(
                    f"{ranks} ranks, {workers} workers: {seconds:.1f} s, {1e3 * seconds / ranks:.0f} ms a rank, "
                    f"{1e3 * cpu_s / ranks:.0f} ms of a worker's core; per core {per_core:.2f} of the control by the "
                    f"clock, {ranks * control_cpu_s / cpu_s:.2f} by CPU time of the workers; most memory {most:.0f} MB "
                    f"in a worker, now {now:.0f} MB; load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
    whole = runs / f"job{len(list(job.glob('rank*')))}"
    if whole.exists():
        compare(job, whole)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", type=Path, help="folder that make_job.py wrote")
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--keep", type=Path, help="put the runs here, and leave them")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(1))  # the cluster ends with this process
    with tempfile.TemporaryDirectory() as scratch:
        run(arguments.job, arguments, Path(scratch))
