"""The benchmark: N processes on each of M devices, a folder each, and what they measured together.

May import `collector.format.run`, `collector.format.schema` and `collector.launch.script`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from collector.format.schema.errors import OutputError, RunError
from collector.launch.benchmark.clocks import hold_clocks
from collector.launch.benchmark.comparison import compare_benchmarks, format_speed_up, read_mean
from collector.launch.benchmark.devices import CPU, Place, choose_places
from collector.launch.benchmark.documents import (
    MEAN_FILE,
    PROCESS_FILE,
    Measured,
    ProcessResult,
    build_mean,
    measure_process,
    write_document,
)
from collector.launch.script import Program

LOG_FILE = "log.txt"


@dataclass(frozen=True)
class Benchmark:
    """What to run. `gpus` None is one if there is one; `warmup` batches are left out at both ends."""

    program: Program
    output: Path
    options: str | None = None
    processes: int = 1
    gpus: int | None = None
    warmup: int = 1
    maximize_clocks: bool = False
    baseline: Path | None = None


@dataclass(frozen=True)
class Worker:
    """A process of the benchmark that has been started."""

    folder: Path
    process: subprocess.Popen[bytes]


def run_benchmark(benchmark: Benchmark) -> int:
    """Run it, write its files and say how it went; 1 if a process failed. Raises OutputError, UsageError or RunError."""
    baseline = read_mean(benchmark.baseline) if benchmark.baseline else None
    places = choose_places(benchmark.gpus, os.environ)
    if benchmark.gpus and places == (CPU,):
        _say("there is no GPU here: the processes run on the CPU")
    with ExitStack() as stack:
        refusal = _hold_clocks(benchmark, places, stack)
        results = _wait_for(_start_all(benchmark, places, stack))
    measured, results = _measure_all(benchmark, results)
    mean = build_mean(measured, results, benchmark.warmup)
    mean["meta"]["maximize_clocks"] = refusal
    mean["meta"]["arguments"] = benchmark.program.words
    if baseline is not None:
        mean["speed_up"] = {"baseline": str(benchmark.baseline), "ranges": compare_benchmarks(baseline, mean)}
        print(format_speed_up(mean["speed_up"]["ranges"]))
    _write(mean, benchmark.output / MEAN_FILE)
    for text in mean["meta"]["warnings"]:
        _say(text)
    _say(f"{mean['meta']['coverage']} are in {benchmark.output / MEAN_FILE}")
    return 0 if len(measured) == len(results) else 1


def compare_only(output: Path, baseline: Path) -> int:
    """Print the speed-up of a benchmark that was run before. Raises RunNotFoundError or TableBrokenError."""
    print(format_speed_up(compare_benchmarks(read_mean(baseline), read_mean(output))))
    return 0


def _hold_clocks(benchmark: Benchmark, places: tuple[Place, ...], stack: ExitStack) -> str:
    """Hold the clocks if that is asked for; return how it went, for the meta data."""
    gpus = [place.visible for place in places if place.is_gpu]
    if not benchmark.maximize_clocks:
        return "not asked for"
    if not gpus:
        _say("--maximize-clocks: there is no GPU whose clock could be raised")
        return "no GPU"
    problem = stack.enter_context(hold_clocks(gpus))
    if problem:
        _say(f"--maximize-clocks: {problem}; the benchmark runs with the clocks as they are")
    return problem or "held"


def _start_all(benchmark: Benchmark, places: tuple[Place, ...], stack: ExitStack) -> list[Worker]:
    workers = []
    for place in places:
        for number in range(benchmark.processes):
            worker = _start(benchmark, place, benchmark.output / f"proc_{number}_gpu_{place.label}")
            stack.callback(_end, worker)
            workers.append(worker)
    return workers


def _start(benchmark: Benchmark, place: Place, folder: Path) -> Worker:
    options = [] if benchmark.options is None else [f"--options={benchmark.options}"]
    own = [sys.executable, "-m", "collector.launch", f"--output={folder}", *options]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": place.visible}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PROCESS_FILE).unlink(missing_ok=True)
        with open(folder / LOG_FILE, "wb") as log:
            process = subprocess.Popen(
                [*own, *benchmark.program.words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
    except OSError as error:
        raise OutputError(f"{folder} cannot be written ({error.strerror or error}); choose another -o") from None
    return Worker(folder, process)


def _wait_for(workers: list[Worker]) -> list[ProcessResult]:
    return [
        ProcessResult(worker.folder.name, worker.process.wait(), str(worker.folder / LOG_FILE)) for worker in workers
    ]


def _end(worker: Worker) -> None:
    """End a process that still runs because the benchmark was broken off."""
    if worker.process.poll() is None:
        worker.process.terminate()
        worker.process.wait()


def _measure_all(benchmark: Benchmark, ended: list[ProcessResult]) -> tuple[list[Measured], list[ProcessResult]]:
    """Measure those that ended well; say of each other one why it has no results."""
    measured, results = [], []
    for result in ended:
        one = _measure(benchmark, result)
        if isinstance(one, Measured):
            measured.append(one)
        else:
            result = replace(result, reason=one)
            _say(f"{result.process} failed: {one}; its log: {result.log}")
        results.append(result)
    return measured, results


def _measure(benchmark: Benchmark, result: ProcessResult) -> Measured | str:
    if result.exit_code:
        return f"exit code {result.exit_code}"
    try:
        return measure_process(benchmark.output / result.process, benchmark.program.words, benchmark.warmup)
    except (RunError, OSError) as error:
        return f"it ended well, but cannot be measured: {error}"


def _write(document: dict[str, object], path: Path) -> None:
    try:
        write_document(document, path)
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror or error}); free space on the disk") from None


def _say(text: str) -> None:
    print(f"profiler-run: {text}", file=sys.stderr)
