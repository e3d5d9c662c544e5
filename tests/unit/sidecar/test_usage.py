"""What is sampled of the machine and the processes, the right GPU, threads and shortage; nothing when it is off, little cost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from collector.format.schema.layout import events_path
from collector.format.words import ENDED_WORKERS
from collector.notes import Notes, write_notes
from collector.ring.clock import Clock
from collector.sidecar.assemblers import resources as assembler
from collector.sidecar.gpu import HEAT, OTHER, POWER, Gpus, read_throttling
from collector.sidecar.usage import (
    Pressure,
    Processes,
    PythonThreads,
    Rates,
    find_groups,
    name_workers,
    read_stalled_us,
)
from collector.signals import interpreter
from tests.support import shapes
from tests.support.recording import record


class FakeNvml:
    """Two boards; CUDA's device 0 is the second of them."""

    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM = 0, 1

    class NVMLError(Exception):
        pass

    def __init__(self, running: dict[str, tuple[int, ...]] | None = None) -> None:
        self.running = running or {}

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return {"GPU-bb": "second", "GPU-aa": "first"}[uuid]

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return ("first", "second")[index]

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        return [SimpleNamespace(pid=pid) for pid in self.running.get(handle, ())]

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> Any:
        return SimpleNamespace(gpu={"first": 10, "second": 90}[handle])

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> Any:
        return SimpleNamespace(used=1 << 30)

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:
        raise self.NVMLError("not supported")

    def nvmlDeviceGetTemperature(self, handle: str, sensor: int) -> int:
        return 61

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> int:
        return 1980

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> int:
        return {"first": 0x1, "second": 0x48}[handle]


def read_gpus(gpus: Gpus) -> dict[tuple[str, str], float]:
    return {(sample.source, sample.metric): sample.value for sample in gpus.sample()}


BURN = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end:\n    pass"
STARTER = f"""
import subprocess, sys
for line in sys.stdin:
    subprocess.run([sys.executable, "-c", {BURN!r}])
    print(flush=True)
"""


@pytest.mark.parametrize("has_workers", [True, False])
def test_what_ended_between_two_samples_is_not_another_program(has_workers: bool, tmp_path: Path) -> None:
    if has_workers:
        events_path(tmp_path).mkdir()
        (events_path(tmp_path) / "stages-0-1-0-1-1.ring").touch()
    with subprocess.Popen([sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdin is not None
        assert starter.stdout is not None
        processes = Processes(tmp_path, starter.pid)
        assert not [sample for sample in processes.sample() if sample.source == ENDED_WORKERS]
        begun = time.monotonic()
        starter.stdin.write(b"\n")
        starter.stdin.flush()
        starter.stdout.readline()
        read = {(sample.source, sample.metric): sample.value for sample in processes.sample()}
        if not has_workers:
            assert (ENDED_WORKERS, "cpu_cores") not in read
            starter.stdin.close()
            return
        used = read[ENDED_WORKERS, "cpu_cores"] * (time.monotonic() - begun)
        assert 0.35 < used < 1.0
        assert read["process", "cpu_cores"] < 0.1
        (idle,) = (sample.value for sample in processes.sample() if sample.source == ENDED_WORKERS)
        assert idle < 0.1
        starter.stdin.close()


def test_the_uuid_that_cuda_gives_decides_which_gpu_it_is() -> None:
    read = read_gpus(Gpus([{"index": 0, "uuid": "bb"}], None, 1, FakeNvml()))
    assert read["gpu 0", "utilization_frac"] == 0.9
    assert read["gpu 0", "clock_hz"] == 1.98e9
    assert ("gpu 0", "power_w") not in read


def test_a_gpu_that_is_too_hot_says_so() -> None:
    devices = [{"index": 0, "uuid": "aa"}, {"index": 1, "uuid": "bb"}]
    read = read_gpus(Gpus(devices, None, 1, FakeNvml()))
    assert (read["gpu 0", "throttle_flags"], read["gpu 1", "throttle_flags"]) == (0, HEAT)


@pytest.mark.parametrize(
    ("reasons", "flags"),
    [(0, 0), (0x1, 0), (0x102, 0), (0x4, POWER), (0x88, POWER), (0x24, POWER + HEAT), (0x8, OTHER)],
)
def test_only_what_holds_the_clock_down_against_its_will_is_throttling(reasons: int, flags: int) -> None:
    assert read_throttling(reasons) == flags


def test_a_library_that_knows_the_older_name_is_asked_by_it() -> None:
    class Older(FakeNvml):
        nvmlDeviceGetCurrentClocksEventReasons = property()  # hasattr() says no

        def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
            return 0x4

    assert read_gpus(Gpus([{"index": 0}], None, 1, Older()))["gpu 0", "throttle_flags"] == POWER


@pytest.mark.parametrize(("visible", "share"), [(None, 0.1), ("1", 0.9), ("GPU-bb,0", 0.9), ("0,1", 0.1)])
def test_without_a_uuid_the_visible_devices_decide(visible: str | None, share: float) -> None:
    assert read_gpus(Gpus([{"index": 0}], visible, 1, FakeNvml()))["gpu 0", "utilization_frac"] == share


def test_devices_of_other_ranks_are_left_out_where_nvml_knows_the_process() -> None:
    devices = [{"index": 0, "uuid": "aa"}, {"index": 1, "uuid": "bb"}]
    read = read_gpus(Gpus(devices, None, 77, FakeNvml({"first": (5,), "second": (77,)})))
    assert {source for source, _ in read} == {"gpu 1"}
    assert {source for source, _ in read_gpus(Gpus(devices, None, 77, FakeNvml()))} == {"gpu 0", "gpu 1"}


def test_a_gpu_that_cannot_be_asked_is_told_and_nothing_else_fails() -> None:
    class Broken(FakeNvml):
        def nvmlInit(self) -> None:
            raise self.NVMLError("driver not loaded")

    gpus = Gpus([{"index": 0}], None, 1, Broken())
    assert list(gpus.sample()) == []
    assert gpus.signal is not None
    assert "driver not loaded" in gpus.signal.reason


def test_a_rate_is_the_growth_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 12.0, 13.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    rates, key = Rates(), ("process", 1, "cpu_cores")
    assert [rates.grow(key, count) for count in (5.0, 6.0, 2.0)] == [None, 0.5, 0.0]


def test_workers_are_named_by_the_log_that_they_write(tmp_path: Path) -> None:
    for name in ("stages-0-2-1-4242-99.ring", "stages-1-1-0-4343-99.ring", "stages-main-77-5.ring", "stages-x.ring"):
        (tmp_path / name).touch()
    assert name_workers(tmp_path) == {4242: "worker 1", 4343: "worker 0 of loader 1"}


PARENT = "import subprocess as s, sys; print(s.Popen([sys.executable, '-c', 'input()']).pid, flush=True); input()"


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """A process with one child; both end with their standard input."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=pipe, stdout=pipe, text=True) as process:
        yield process


@pytest.mark.parametrize("is_starting", [False, True])
def test_a_child_with_a_log_is_sampled_and_another_is_not_yet(
    tmp_path: Path, parent: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, is_starting: bool
) -> None:
    """One that is just being started is judged when its command is there."""
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    events = events_path(tmp_path)
    events.mkdir(parents=True)
    processes = Processes(tmp_path, parent.pid)
    with monkeypatch.context() as starting:
        if is_starting:
            starting.setattr(psutil.Process, "cmdline", lambda self: [])
        assert {sample.source for sample in processes.sample()} == {"process"}
    (events / f"stages-0-1-3-{child}-1.ring").touch()
    assert {sample.source for sample in processes.sample()} == {"process", "worker 3"}


def make_assembler(folder: Path, **options: bool) -> assembler.ResourcesAssembler:
    events_path(folder).mkdir(parents=True)
    clock = Clock.start()
    notes = Notes(
        0, os.getpid(), None, "host", 0, clock.epoch_unix_ns, clock.perf_ns, clock.unix_ns, options=dict(options)
    )
    write_notes(notes, folder)
    return assembler.ResourcesAssembler(folder, clock)


def test_one_look_has_one_time_and_the_next_waits_half_a_second(tmp_path: Path) -> None:
    sampler = make_assembler(tmp_path)
    rows = sampler.poll()["resources"].to_pylist()
    assert len({row["start_ns"] for row in rows}) == 1
    assert {("system", "memory_bytes"), ("process", "memory_bytes")} <= {(r["source"], r["metric"]) for r in rows}
    assert sampler.poll() == {}


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's schedstat is read")
def test_the_share_of_time_in_the_run_queue_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = make_assembler(tmp_path)
    monkeypatch.setattr(assembler, "EVERY_S", 0.0)
    sampler.poll()
    time.sleep(0.1)
    found = {(row["source"], row["metric"]): row["value"] for row in sampler.poll()["resources"].to_pylist()}
    assert 0.0 <= found["process", "run_queue_frac"] <= 1.5
    assert found["process", "main_thread_cores"] >= 0.0
    assert found["system", "usable_cpu_cores"] >= 0.0


def test_nothing_is_sampled_when_it_is_off(tmp_path: Path) -> None:
    assert make_assembler(tmp_path, resources=False).poll() == {}


def test_sampling_costs_under_five_percent_of_a_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = make_assembler(tmp_path)
    monkeypatch.setattr(assembler, "EVERY_S", 0.0)
    for _ in range(3):
        sampler.poll()
    begin = time.process_time()
    for _ in range(20):
        sampler.poll()
    assert (time.process_time() - begin) / 20 < 0.05 * 0.5


def note(folder: Path, threads: object) -> None:
    notes = Notes(0, os.getpid(), None, "host", 0, 0, 0, 0, facts={"python_threads": threads})
    (folder / "events").mkdir(exist_ok=True)
    write_notes(notes, folder)


def schedule(folder: Path, thread: int, ran_ns: int) -> None:
    task = folder / "proc" / "7" / "task" / str(thread)
    task.mkdir(parents=True, exist_ok=True)
    (task / "schedstat").write_text(f"{ran_ns} 5 1\n")


def train() -> None:
    model = shapes.Net()
    shapes.train_on(model, shapes.sgd(model), shapes.loader(320))


def test_threads_are_summed(tmp_path: Path) -> None:
    note(tmp_path, [{"id": 8, "name": "a"}, {"id": 9, "name": "b"}, {"id": 10, "name": "gone"}])
    for thread in (8, 9):
        schedule(tmp_path, thread, 0)
    threads = PythonThreads(tmp_path, 7, tmp_path / "proc")
    assert list(threads.sample()) == []
    for thread in (8, 9):
        schedule(tmp_path, thread, 10_000_000_000)
    (sample,) = threads.sample()
    assert (sample.source, sample.metric) == ("process", "python_threads_cores")
    assert sample.value > 0


def test_damaged_notes_name_no_threads(tmp_path: Path) -> None:
    for threads in (None, 3, ["x", {}, {"id": "y"}, {"id": -4}]):
        note(tmp_path, threads)
        reader = PythonThreads(tmp_path, 7, tmp_path / "proc")
        assert [*reader.sample(), *reader.sample()] == []


def test_other_threads_are_noted_and_the_training_thread_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "MOST_THREADS", 10_000)  # earlier tests may have left threads in this process
    stop = threading.Event()
    other = threading.Thread(target=stop.wait, name="prefetch")
    other.start()
    try:
        facts = record(tmp_path, train).run.rank().manifest.facts
    finally:
        stop.set()
        other.join()
    noted = {entry["name"]: entry["id"] for entry in facts["python_threads"]}
    assert noted["prefetch"] == other.native_id
    assert threading.get_native_id() not in noted.values()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, Path]:
    """A system whose process 7 is in a group of its own."""
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    write(proc / "7" / "cgroup", "0::/jobs/one\n")
    write(root / "jobs" / "one" / "cpu.stat", "usage_usec 5\nnr_periods 100\nnr_throttled 10\nthrottled_usec 1000\n")
    write(root / "jobs" / "one" / "memory.pressure", "some avg10=0.0 avg60=0.0 avg300=0.0 total=1000\nfull total=3\n")
    return root, proc


def test_a_quota_that_is_used_up_is_sampled(machine: tuple[Path, Path]) -> None:
    root, proc = machine
    pressure = Pressure(7, root, proc)
    assert list(pressure.sample()) == []
    write(root / "jobs" / "one" / "cpu.stat", "nr_periods 110\nnr_throttled 15\nthrottled_usec 90001000\n")
    found = {sample.metric: sample for sample in pressure.sample()}
    assert found["throttled_frac"].value == 0.5
    assert found["throttled_cores"].value > 0
    assert found["throttled_frac"].source == "cgroup"
    assert (found["memory_stall_frac"].source, found["memory_stall_frac"].value) == ("cgroup", 0.0)


@pytest.mark.parametrize(("job", "step"), [(8, 0), (8, 2), (0, 2), (0, 0)])
def test_the_group_that_is_stopped_most_is_sampled(job: int, step: int, tmp_path: Path) -> None:
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    write(proc / "7" / "cgroup", "0::/slurm/job_1/step_0/task_0\n")
    groups = {"": 0, "slurm": 0, "slurm/job_1": job, "slurm/job_1/step_0": step, "slurm/job_1/step_0/task_0": None}
    for group, stopped in groups.items():
        write(root / group / "cpu.stat", "usage_usec 5\n" + "nr_periods 100\n" * (stopped is not None))
    pressure = Pressure(7, root, proc)
    assert list(pressure.sample()) == []
    for group, stopped in groups.items():
        if stopped is not None:
            text = f"nr_periods 110\nnr_throttled {stopped}\nthrottled_usec {stopped}000000\n"
            write(root / group / "cpu.stat", text)
    shares = [sample.value for sample in pressure.sample() if sample.metric == "throttled_frac"]
    assert shares == [max(job, step) / 10]


def test_a_group_without_a_quota_says_nothing(machine: tuple[Path, Path]) -> None:
    root, proc = machine
    write(root / "jobs" / "one" / "cpu.stat", "usage_usec 5\nuser_usec 3\n")
    pressure = Pressure(7, root, proc)
    assert [sample.metric for _ in range(3) for sample in pressure.sample()] == ["memory_stall_frac"] * 2


def test_groups_of_the_first_version_are_found(tmp_path: Path) -> None:
    write(tmp_path / "proc" / "7" / "cgroup", "4:memory:/x\n2:cpu,cpuacct:/jobs/a:b\n0::/\n")
    root = tmp_path / "cgroup"
    found = find_groups(7, root, tmp_path / "proc")
    mounts = root / "cpu,cpuacct", root / "cpu"
    assert found == [*(mount / group for mount in mounts for group in ("jobs/a:b", "jobs", "")), root]


def test_nanoseconds_of_the_first_version_count(tmp_path: Path) -> None:
    root, proc = tmp_path / "cgroup", tmp_path / "proc"
    write(proc / "7" / "cgroup", "2:cpu:/\n")
    write(root / "cpu" / "cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n")
    pressure = Pressure(7, root, proc)
    list(pressure.sample())
    write(root / "cpu" / "cpu.stat", "nr_periods 10\nnr_throttled 10\nthrottled_time 900000000000\n")
    found = {sample.metric: sample.value for sample in pressure.sample()}
    assert found["throttled_frac"] == 1.0
    assert found["throttled_cores"] > 1.0


@pytest.mark.parametrize("text", ["", "\n", "some\n", "some total=x\n", "full total=3\n", "nr_periods\n", "\xff\n"])
def test_files_that_say_something_else_are_no_samples(text: str, machine: tuple[Path, Path]) -> None:
    root, proc = machine
    for name in ("cpu.stat", "memory.pressure"):
        (root / "jobs" / "one" / name).write_text(text, encoding="latin-1")
    pressure = Pressure(7, root, proc)
    assert [sample for _ in range(3) for sample in pressure.sample()] == []
    assert read_stalled_us(root / "jobs" / "one" / "memory.pressure") is None


def test_a_group_that_does_not_count_waits_leaves_them_to_the_system(tmp_path: Path) -> None:
    write(tmp_path / "proc" / "7" / "cgroup", "2:cpu:/\n")
    pressure = Pressure(7, tmp_path / "cgroup", tmp_path / "proc")
    assert {sample.source for _ in range(2) for sample in pressure.sample()} <= {"system"}
