"""Benchmark a program: run N processes of it on each of M devices, and measure their batches together."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from collector.edge import say
from collector.format.schema.errors import OutputError, RunError
from collector.format.schema.removal import ensure_run_folder, remove_file
from collector.launch.barrier import VARIABLE, Barrier, make_room
from collector.launch.benchmark.comparison import compare_benchmarks, format_speed_up, read_mean
from collector.launch.benchmark.documents import (
    MEAN_FILE,
    PROCESS_FILE,
    Measured,
    build_mean,
    measure_process,
    write_document,
)
from collector.launch.benchmark.figures import Tree
from collector.launch.benchmark.gpus import CPU, Place, choose_places, hold_clocks
from collector.launch.children import LOG_FILE, refuse_output, start_recording
from collector.launch.script import Program

_LOOK_S = 0.02


@dataclass(frozen=True)
class Benchmark:
    """The settings of a benchmark, with `processes` on each device. `options` are the Profiler's options as JSON;
    `baseline` is the folder of an earlier benchmark to compare with, None for none. `gpus` is the number of GPUs, 0 for
    the CPU, None for one GPU if any. Of each range, the first and the last `warmup` batches are left out of means.
    """

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
    folder: Path
    process: subprocess.Popen[bytes]
    barrier: Barrier


def run_benchmark(benchmark: Benchmark) -> int:
    """Run the benchmark, write its figures and print where they are. Return 1 if a process failed, else 0. Raises
    OutputError, UsageError or RunError."""
    baseline = read_mean(benchmark.baseline) if benchmark.baseline else None
    places = choose_places(benchmark.gpus, os.environ)
    if benchmark.gpus and places == (CPU,):
        say("there is no GPU here: the processes run on the CPU")
    with ExitStack() as stack:
        refusal = _hold_clocks(benchmark, places, stack)
        since_unix_ns = time.time_ns()
        workers = _start_all(benchmark, places, stack)
        _wait_for(workers)
    measured, failed = _measure_all(benchmark, workers, since_unix_ns)
    mean = build_mean(measured, failed, benchmark.warmup)
    mean["meta"] |= {"maximize_clocks": refusal, "arguments": benchmark.program.words}
    if baseline is not None:
        _compare(mean, baseline, benchmark.baseline)
    _write(mean, benchmark.output / MEAN_FILE)
    for text in mean["meta"]["warnings"]:
        say(text)
    say(f"{mean['meta']['coverage']} are in {benchmark.output / MEAN_FILE}")
    return 1 if failed else 0


def compare_only(output: Path, baseline: Path) -> int:
    """Print the speed-up of the earlier benchmark `output` over `baseline`, write it to `output`, and return 0.

    Raises RunNotFoundError, TableBrokenError or OutputError.
    """
    before, mean = read_mean(baseline), read_mean(output)
    _compare(mean, before, baseline)
    _write(mean, output / MEAN_FILE)
    return 0


def _compare(mean: Tree, baseline: Tree, place: Path | None) -> None:
    mean["speed_up"] = {"baseline": str(place), **compare_benchmarks(baseline, mean)}
    print(format_speed_up(mean["speed_up"]))
    for text in mean["speed_up"]["warnings"]:
        say(text)


def _hold_clocks(benchmark: Benchmark, places: tuple[Place, ...], stack: ExitStack) -> str:
    gpus = [place.visible for place in places if place.is_gpu]
    if not benchmark.maximize_clocks:
        return "not asked for"
    if not gpus:
        say("--maximize-clocks: there is no GPU whose clock could be raised")
        return "no GPU"
    problem = stack.enter_context(hold_clocks(gpus))
    if problem:
        say(f"--maximize-clocks: {problem}; the benchmark runs with the clocks as they are")
    return problem or "held"


def _start_all(benchmark: Benchmark, places: tuple[Place, ...], stack: ExitStack) -> list[Worker]:
    try:
        room = make_room(benchmark.output)
    except OSError as error:
        raise refuse_output(benchmark.output, error) from None
    stack.callback(room.remove)
    barrier = Barrier(str(room.path), "", len(places) * benchmark.processes)
    workers = []
    for place in places:
        for number in range(benchmark.processes):
            worker = _start(benchmark, place, replace(barrier, name=f"proc_{number}_gpu_{place.label}"))
            stack.callback(_end, worker.process)
            workers.append(worker)
    return workers


def _start(benchmark: Benchmark, place: Place, barrier: Barrier) -> Worker:
    folder = benchmark.output / barrier.name
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": place.visible, VARIABLE: barrier.encode()}
    try:
        ensure_run_folder(folder)
        for name in (PROCESS_FILE, LOG_FILE):
            remove_file(folder / name)
        return Worker(folder, start_recording(folder, benchmark.options, benchmark.program.words, environment), barrier)
    except OSError as error:
        raise refuse_output(folder, error) from None


def _wait_for(workers: list[Worker]) -> None:
    """Wait until all processes have ended. A process that ends too early releases the others from the barrier."""
    running = list(workers)
    while running:
        for worker in [worker for worker in running if worker.process.poll() is not None]:
            running.remove(worker)
            if worker.barrier.leave() and running:
                say(f"{worker.folder.name} ended before it was ready; the others do not wait for it")
        time.sleep(_LOOK_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        process.wait()


def _measure_all(benchmark: Benchmark, workers: list[Worker], since_unix_ns: int) -> tuple[list[Measured], list[Tree]]:
    measured: list[Measured] = []
    failed: list[Tree] = []
    for worker in workers:
        name, code, log = worker.folder.name, worker.process.returncode, str(worker.folder / LOG_FILE)
        reason = f"exit code {code}" if code else ""
        try:
            if not code:
                words = benchmark.program.words
                measured.append(measure_process(worker.folder, words, benchmark.warmup, since_unix_ns))
        except (RunError, OSError) as error:
            reason = f"it ended well, but cannot be measured: {error}"
        if reason:
            failed.append({"process": name, "exit_code": code, "log": log, "reason": reason})
            say(f"{name} failed: {reason}; its log: {log}")
    return measured, failed


def _write(document: Tree, path: Path) -> None:
    try:
        write_document(document, path)
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror or error}); free space on the disk") from None
