"""Time the import of a job of many rank files, beside a control.

    python benchmarks/import_ranks.py trace.json.gz --ranks 64 256 --jobs 1 2 --repeats 3

Makes rank files of one trace, each with its rank and a slightly late clock. Then measures in turns, each time in a new
process: one file alone (the control), then each number of ranks with each number of processes. Prints medians: seconds,
seconds and CPU time per rank, throughput per core relative to the control of the same turn, and the most memory of one
process.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

LATE_NS = 1_000_000
IMPORT = """
import sys
from collector.traces.format import ReadOptions
from collector.traces.importing import import_traces
from collector.traces.workers import Here, Processes
if __name__ == "__main__":
    source, target, jobs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    run = import_traces([source], target, ReadOptions(), Processes(jobs) if jobs > 1 else Here())
    assert len(run.ranks) == int(sys.argv[4]), run.ranks
"""


def write_ranks(trace: Path, folder: Path, ranks: int) -> None:
    """Write the trace once for each rank. The trace is parsed only once, because the files differ only in their heads."""
    content = trace.read_bytes()
    whole = json.loads(gzip.decompress(content) if trace.suffix == ".gz" else content)
    base_ns = int(whole.get("baseTimeNanoseconds", 0))
    events = json.dumps(whole.pop("traceEvents"))
    folder.mkdir()
    for rank in range(ranks):
        told = {"distributedInfo": {"rank": rank, "world_size": ranks}, "baseTimeNanoseconds": base_ns + rank * LATE_NS}
        head = json.dumps({**whole, **told})[:-1]
        (folder / f"rank{rank}.json").write_text(f'{head}, "traceEvents": {events}}}', encoding="utf-8")


class Measured(NamedTuple):
    """One measurement. `cpu_s` is the CPU time of all processes: on a machine with other work it varies less than
    `seconds`."""

    seconds: float
    cpu_s: float
    most_mb: float


def measure(script: Path, source: Path, jobs: int, ranks: int) -> Measured:
    """Import a job in a new process. `most_mb` is the peak memory of its largest process."""
    target = script.parent / "run"
    command = [sys.executable, str(script), str(source), str(target), str(jobs), str(ranks)]
    measured = time_process(command)
    shutil.rmtree(target)
    return measured


def time_process(command: list[str]) -> Measured:
    begun_s = time.perf_counter()
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])})
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begun_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"it ended with {process.returncode}: {command}")
    return Measured(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def run(trace: Path, many: list[int], jobs: list[int], repeats: int) -> None:
    found: dict[tuple[int, int], list[tuple[Measured, float, float]]] = defaultdict(list)
    controls: list[Measured] = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "measured.py")
        script.write_text(IMPORT, encoding="utf-8")
        for ranks in {1, *many}:
            write_ranks(trace, Path(folder, f"job{ranks}"), ranks)
        size = Path(folder, "job1", "rank0.json").stat().st_size / 1e6
        for _ in range(repeats):
            control, start = measure(script, Path(folder, "job1"), 1, 1), measure_start()
            controls.append(control)
            for ranks in many:
                for count in jobs:
                    one = measure(script, Path(folder, f"job{ranks}"), count, ranks)
                    found[ranks, count].append((one, *compare(one, control, start, (ranks, count))))
    middle = statistics.median(control.seconds for control in controls)
    cpu_s = statistics.median(control.cpu_s for control in controls)
    print(f"control, one file of {size:.1f} MB: {middle:.2f} s, {cpu_s:.2f} s of a core, start included")
    for (ranks, count), results in found.items():
        seconds = statistics.median(one.seconds for one, _, _ in results)
        print(
            f"{ranks} ranks, {count} processes: {seconds:.1f} s, {seconds / ranks * 1e3:.0f} ms a rank, "
            f"{statistics.median(one.cpu_s for one, _, _ in results) / ranks * 1e3:.0f} ms of a core a rank, "
            f"per core {statistics.median(share for _, share, _ in results):.2f} of the control by the clock, "
            f"{statistics.median(share for _, _, share in results):.2f} by CPU time, "
            f"most {max(one.most_mb for one, _, _ in results):.0f} MB in a process"
        )


def compare(one: Measured, control: Measured, start: Measured, size: tuple[int, int]) -> tuple[float, float]:
    """Return the throughput per core relative to the control, by the clock and by CPU time. The start of processes is
    not counted as reading."""
    ranks, count = size
    cores = min(count, os.cpu_count() or 1)
    starts = 1 if count == 1 else 2  # that of the process that waits, then those of the others at once
    ideal_s = starts * start.seconds + ranks * (control.seconds - start.seconds) / cores
    ideal_cpu_s = (1 if count == 1 else count + 1) * start.cpu_s + ranks * (control.cpu_s - start.cpu_s)
    return ideal_s / one.seconds, ideal_cpu_s / one.cpu_s


def measure_start() -> Measured:
    """Measure a process that only imports the modules of an import."""
    code = "import collector.traces.importing, collector.traces.kineto.decode.log"
    return time_process([sys.executable, "-c", code])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    run(given.trace, given.ranks, given.jobs, given.repeats)
