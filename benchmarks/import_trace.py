"""Time the import of a trace, file to Parquet, in a new process, and its peak memory.

python benchmarks/import_trace.py grown.json [--repeats 3]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def measure(trace: Path) -> tuple[float, float]:
    """Return the seconds of the whole process and its peak memory in MB."""
    with tempfile.TemporaryDirectory() as folder:
        code = f"from collector.traces.importing import import_trace; import_trace({str(trace)!r}, {folder + '/run'!r})"
        before = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        seconds = time.perf_counter() - before
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    megabytes = given.trace.stat().st_size / 1e6
    for _ in range(given.repeats):
        seconds, peak = measure(given.trace)
        print(f"{megabytes:.0f} MB in {seconds:.2f} s: {megabytes / seconds:.0f} MB/s, peak {peak:.0f} MB")
