"""Quotas and shortage of memory, read from files of the kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from collector.sidecar.usage import Pressure, find_groups, read_stalled_us


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


def test_a_group_without_a_quota_says_nothing(machine: tuple[Path, Path]) -> None:
    root, proc = machine
    write(root / "jobs" / "one" / "cpu.stat", "usage_usec 5\nuser_usec 3\n")
    pressure = Pressure(7, root, proc)
    assert [sample.metric for _ in range(3) for sample in pressure.sample()] == ["memory_stall_frac"] * 2


def test_groups_of_the_first_version_are_found(tmp_path: Path) -> None:
    write(tmp_path / "proc" / "7" / "cgroup", "4:memory:/x\n2:cpu,cpuacct:/jobs/a:b\n0::/\n")
    root = tmp_path / "cgroup"
    found = find_groups(7, root, tmp_path / "proc")
    assert found[:4] == [root / "cpu,cpuacct/jobs/a:b", root / "cpu,cpuacct", root / "cpu/jobs/a:b", root / "cpu"]


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


def test_a_process_that_is_gone_has_no_group(tmp_path: Path) -> None:
    assert find_groups(7, tmp_path, tmp_path) == []


def test_this_machine_can_be_asked() -> None:
    pressure = Pressure(os.getpid())
    for sample in [*pressure.sample(), *pressure.sample()]:
        assert sample.value >= 0.0
