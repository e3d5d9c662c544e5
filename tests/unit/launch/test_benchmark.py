"""The benchmark with real processes: folders, files, a process that fails, clocks that are set back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collector.launch.benchmark.gpus import find_gpus
from tests.support.waiting import wait_for
from tests.unit.launch.programs import ROOT, run_launcher, write_script

RANGES = """
import os, sys, time, torch
from collector import pop_range, push_range
if "proc_1" in os.environ["PROFILER_OUTPUT_PATH"]:
    print("the planned failure")
    sys.exit(3)
push_range("pipeline")
for index in range(3):
    push_range("batch", batch_idx=index)
    time.sleep(0.01)
    pop_range(total_items=8)
pop_range()
"""
SLOW_START_S = 1.0
TOY = f"""
import json, pathlib, os, time
from collector import pop_range, push_range
number = int("proc_1" in os.environ["PROFILER_OUTPUT_PATH"])
time.sleep({SLOW_START_S} * number)
push_range("pipeline")
pathlib.Path(f"started_{{number}}").write_text(json.dumps(time.time()))
for index in range(3):
    push_range("batch", batch_idx=index)
    time.sleep(0.2)
    pop_range(total_items=1)
pop_range()
"""
NVML = '''
"""Stands in for NVML: writes down what it is told."""
import os
NVML_CLOCK_SM = 1
class NVMLError(Exception): pass
def _note(*words):
    with open(os.environ["NVML_NOTES"], "a") as file: print(*words, file=file)
def nvmlInit(): pass
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetMaxClockInfo(handle, kind): return 1980
def nvmlDeviceSetGpuLockedClocks(handle, low, high): _note("set", handle, low, high)
def nvmlDeviceResetGpuLockedClocks(handle): _note("reset", handle)
'''


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_warnings_of_a_run_are_those_of_its_benchmark(tmp_path: Path) -> None:
    left_open = 'import time\nfrom collector import push_range\npush_range("batch", batch_idx=0)\ntime.sleep(0.01)\n'
    script = write_script(tmp_path, left_open)
    done = run_launcher(
        tmp_path, "-np", "1", "-ng", "0", "-w", "0", "-o", "out", "--options", '{"window": null}', script
    )
    (warning,) = (text for text in read(tmp_path / "out/benchmark_mean.json")["meta"]["warnings"] if "open" in text)
    assert warning.startswith("proc_0_gpu_cpu: ")
    assert warning in done.stderr
    assert "profiler.step()" not in done.stderr


def test_a_process_that_fails_is_named_and_the_others_results_are_kept(tmp_path: Path) -> None:
    script = write_script(tmp_path, RANGES)
    done = run_launcher(
        tmp_path, "-np", "2", "-ng", "0", "-w", "1", "-o", "out", "--options", '{"window": null}', script
    )
    assert done.returncode == 1
    assert "proc_1_gpu_cpu failed: exit code 3" in done.stderr
    mean, own = read(tmp_path / "out/benchmark_mean.json"), read(tmp_path / "out/proc_0_gpu_cpu/benchmark.json")
    (failed,) = mean["meta"]["failed"]
    assert (failed["process"], failed["exit_code"]) == ("proc_1_gpu_cpu", 3)
    assert "the planned failure" in Path(failed["log"]).read_text(encoding="utf-8")
    assert (mean["meta"]["coverage"], mean["meta"]["processes"]) == ("1 of 2 processes", ["proc_0_gpu_cpu"])
    assert not (tmp_path / "out/proc_1_gpu_cpu/benchmark.json").exists()
    assert own["meta"]["total_batches_minus_warmup"] == 1
    assert own["data_stats_minus_warmup"]["pipeline/batch"]["cpu_time"]["total_items"] == 8
    assert mean["mean_all_batches"]["pipeline"]["batch_1"]["cpu_time"] == own["data"]["pipeline"]["batch_1"]["cpu_time"]
    assert 0 < mean["data_stats_minus_warmup_all_procs"]["pipeline/batch"]["throughput"] <= 800
    assert own["gpu_metrics"] == {}
    assert {"python", "torch", "stepscope"} <= own["meta"]["versions"].keys()


def test_a_warm_up_that_leaves_nothing_warns_and_a_baseline_is_named_before_the_run(tmp_path: Path) -> None:
    script = write_script(tmp_path, RANGES)
    done = run_launcher(tmp_path, "-w", "2", "-ng", "0", "-o", "out", script)
    assert done.returncode == 0
    assert "a warm-up of 2 batches at each end leaves none of 3" in done.stderr
    done = run_launcher(tmp_path, "-o", "again", "--baseline", "nowhere", script)
    assert (done.returncode, (tmp_path / "again").exists()) == (2, False)
    assert "nowhere holds no benchmark_mean.json" in done.stderr


def test_a_script_without_torch_is_benchmarked_in_processes_that_begin_together(tmp_path: Path) -> None:
    script = write_script(tmp_path, TOY)
    done = run_launcher(tmp_path, "-np", "2", "-ng", "0", "-w", "1", "-o", "new", script)
    assert done.returncode == 0, done.stderr
    mean = read(tmp_path / "new/benchmark_mean.json")
    assert mean["meta"]["total_batches"] == 6
    starts = [read(tmp_path / f"started_{number}") for number in (0, 1)]
    assert abs(starts[0] - starts[1]) < SLOW_START_S
    assert not (tmp_path / "new/.start").exists()
    pipeline = mean["mean_all_batches"]["pipeline"]
    assert pipeline["cpu_time_per_item"] == pytest.approx(pipeline["cpu_time"] / 3)
    assert pipeline["cpu_time_per_item_minus_warmup"] == pipeline["cpu_time_minus_warmup_per_item"]

    done = run_launcher(tmp_path, "--baseline", "new", "-o", "new")
    assert done.returncode == 0, done.stderr
    assert "within the noise" in done.stdout
    assert read(tmp_path / "new/benchmark_mean.json")["speed_up"]["ranges"]["pipeline"]["cpu_time"] == 1


def test_a_process_that_never_recorded_is_named_with_the_reason(tmp_path: Path) -> None:
    for _ in range(2):  # a recording that lies there from an earlier time is not taken for its own
        (tmp_path / "out").mkdir(exist_ok=True)
        done = run_launcher(tmp_path, "-ng", "0", "-o", "out", write_script(tmp_path, "print('nothing to see')"))
        assert done.returncode == 1
        assert "its script neither imported torch nor marked a range" in done.stderr
        assert "Errno" not in done.stderr
        run_launcher(tmp_path, "-o", "out/proc_0_gpu_cpu", write_script(tmp_path, TOY, "toy.py"))


def test_clocks_are_set_back_when_the_benchmark_is_killed(tmp_path: Path) -> None:
    write_script(tmp_path, NVML, "pynvml.py")
    holder = write_script(
        tmp_path,
        "import os, signal\nfrom collector.launch.benchmark.gpus import hold_clocks\n"
        "with hold_clocks(['0', '1']) as problem:\n    assert not problem\n    os.kill(os.getpid(), signal.SIGKILL)\n",
    )
    notes = tmp_path / "notes"
    paths = os.pathsep.join((str(tmp_path), str(ROOT)))
    environment = {**os.environ, "PYTHONPATH": paths, "NVML_NOTES": str(notes)}
    done = subprocess.run([sys.executable, str(holder)], env=environment, timeout=300)
    assert done.returncode == -signal.SIGKILL
    expected = ["set 0 1980 1980", "set 1 1980 1980", "reset 0", "reset 1"]
    wait_for(lambda: notes.read_text().splitlines() == expected, notes.read_text)


def test_without_a_gpu_there_is_none_to_choose() -> None:
    assert find_gpus({"CUDA_VISIBLE_DEVICES": ""}) == ()
