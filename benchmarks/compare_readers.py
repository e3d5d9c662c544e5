"""Time readers of traces side by side: whole processes, from file to figures, in turns.

    python benchmarks/compare_readers.py grown.json --peers path/to/python --perfetto path/to/engine --rounds 3
    python benchmarks/compare_readers.py grown.json --peers path/to/python --only Stepscope "HTA, parsing"

`--peers` is the Python of an environment with HolisticTraceAnalysis and torch-tb-profiler. `--perfetto` is the folder
of Perfetto's WebAssembly build; the default is the folder that `python tests/perfetto/fetch.py` fills. A missing reader
is left out with a message.

Each reader makes its own figures. HTA makes four breakdowns, and some of them fail with an assertion of HTA where times
are finer than a microsecond. torch-tb-profiler makes its views, Stepscope its tables, Perfetto one count. "HTA,
parsing" makes no figure. Memory is the peak of the largest process of a reader.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

_STEPSCOPE = (
    "import sys; from collector.traces.importing import import_trace; import_trace(sys.argv[1], sys.argv[2] + '/run')"
)
_PARSE = """
import sys
from hta.trace_analysis import TraceAnalysis
trace = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir='')
"""
_HTA = f"""{_PARSE}
for figure in ("temporal_breakdown", "gpu_kernel_breakdown", "comm_comp_overlap", "idle_time_breakdown"):
    try:
        getattr(trace, "get_" + figure)(visualize=False)
    except Exception as error:
        print(figure, "failed:", repr(error)[:200])
"""
_TENSORBOARD = """
import sys
from torch_tb_profiler.profiler.data import RunProfileData
from torch_tb_profiler.profiler.run_generator import RunGenerator
data = RunProfileData.parse('worker0', 1, sys.argv[1], sys.argv[2])
RunGenerator('worker0', 1, data).generate_run_profile()
"""
_PEERS = (
    ("HTA, parsing", "hta", _PARSE),
    ("HTA", "hta", _HTA),
    ("torch-tb-profiler", "torch_tb_profiler", _TENSORBOARD),
)
_QUERY = Path(__file__).parents[1] / "tests/perfetto/query.mjs"


def list_readers(peers: Path | None, perfetto: Path | None) -> dict[str, list[str]]:
    """Return the command of each reader that is installed. The trace and a scratch folder are added to it."""
    found = {"Stepscope": [sys.executable, "-c", _STEPSCOPE]}
    for name, module, code in _PEERS:
        if peers and not subprocess.run([peers, "-c", f"import {module}"], capture_output=True).returncode:
            found[name] = [str(peers), "-c", code]
        else:
            print(f"{name} is not installed and left out")
    if perfetto and (perfetto / "engine.mjs").is_file():
        found["Perfetto (WebAssembly)"] = ["node", str(_QUERY), str(perfetto)]
    else:
        print("Perfetto's WebAssembly build is not there and left out")
    return found


def measure(command: Sequence[str], trace: Path) -> tuple[float, float, str]:
    """Return the seconds and the peak memory in MiB of a process, and the last line of its output if it failed."""
    with tempfile.TemporaryDirectory(dir=trace.parent) as folder:
        extra = ["select count(*) from slice"] if command[0] == "node" else [folder]
        with (Path(folder) / "log").open("wb") as log:
            before = time.perf_counter()
            process = subprocess.Popen([*command, str(trace), *extra], stdout=log, stderr=log)
            _, status, usage = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - before
        process.returncode = os.waitstatus_to_exitcode(status)
        words = (Path(folder) / "log").read_text(errors="replace").strip().splitlines()[-1:] or ["no word"]
    return seconds, usage.ru_maxrss / 1024, words[0][:200] if process.returncode else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--perfetto", type=Path, default=_QUERY.parent / "node_modules/perfetto-engine")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", metavar="READER", help="The readers to be timed, by name.")
    given = parser.parse_args()
    readers = list_readers(given.peers, given.perfetto)
    readers = {name: command for name, command in readers.items() if given.only is None or name in given.only}
    times: dict[str, list[float]] = {name: [] for name in readers}
    for _ in range(given.rounds):
        for name, command in readers.items():
            seconds, peak, fault = measure(command, given.trace)
            times[name].append(seconds)
            print(
                f"{name:24s} {seconds:7.2f} s  peak {peak:6.0f} MB{f'  FAILED: {fault}' if fault else ''}", flush=True
            )
    own = statistics.median(times["Stepscope"])
    for name, seconds in times.items():
        print(f"{name:24s} median {statistics.median(seconds):7.2f} s, {statistics.median(seconds) / own:5.1f} x")


if __name__ == "__main__":
    main()
