"""A trace as other tools count it, against figures that those tools gave for the real samples."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from collector.format.intervals import unite
from collector.format.run import RankRun
from collector.traces import import_trace
from profiler_server.analysis.accounting.accounting import account_trace, walk_restarting
from tests.support.traces import call, find_sample, kernel, operator, step, write_trace

ROUNDING_NS = 15
# idle, computation and total in µs, as HTA 0.5 gives them for these files with its defaults.
HTA = {
    "resnet50_v100_workers0.pt.trace": (327463, 492891, 830494),
    "nccl_collectives": (338781, 75169, 435586),
    "two_rank_0": (321378, 106252, 600058),
}


def _import(name: str, tmp_path: Path) -> RankRun:
    run = import_trace(find_sample(f"{name}.json.gz"), tmp_path / "run")
    return run.rank(run.ranks[0])


@pytest.mark.parametrize("name", HTA)
def test_hta_is_met_to_the_microsecond(tmp_path: Path, name: str) -> None:
    found = {account.tool: account for account in account_trace(_import(name, tmp_path)).devices}["HTA"]
    assert (found.idle // 1000, found.computation // 1000, found.total // 1000) == HTA[name]


@pytest.mark.parametrize("name", ["bert_small_h100", "qwen05b_h100", "vit_mi300"])
def test_tracelens_is_met(tmp_path: Path, name: str) -> None:
    found = {account.tool: account for account in account_trace(_import(name, tmp_path)).devices}["TraceLens"]
    with find_sample(f"expected/{name}.gpu_timeline.csv").open(encoding="utf-8") as file:
        expected = {row["type"]: float(row["time ms"]) * 1e6 for row in csv.DictReader(file)}
    assert found.busy == pytest.approx(expected["busy_time"], abs=ROUNDING_NS)
    assert found.idle == pytest.approx(expected["idle_time"], abs=ROUNDING_NS)
    assert found.computation == pytest.approx(expected["computation_time"], abs=ROUNDING_NS)
    assert found.exposed_copy == pytest.approx(expected["exposed_memcpy_time"], abs=ROUNDING_NS)


def test_torch_tb_profiler_is_met_where_it_agrees_with_the_definitions(tmp_path: Path) -> None:
    ours, theirs = account_trace(_import("resnet50_v100_workers0.pt.trace", tmp_path)).steps
    assert round(theirs.total / 6 / 1000) == 177592
    assert [
        round(theirs.parts[name] / 6 / 1000) for name in ("kernel", "runtime", "dataloader", "cpu_exec", "other")
    ] == [*(98589, 2908, 59262, 13674, 1156)]
    assert ours.parts == theirs.parts


def test_a_driver_call_is_no_runtime_to_torch_tb_profiler(tmp_path: Path) -> None:
    events = [
        step(1, 0, 100),
        operator("aten::mm", 10, 50),
        call(20, 10, 1, name="cuLaunchKernel"),
        kernel("k", 70, 5, 1),
    ]
    rank = import_trace(write_trace(tmp_path / "t.json", events), tmp_path / "run").rank()
    ours, theirs = account_trace(rank).steps
    assert (ours.parts["runtime"], theirs.parts["runtime"]) == (10_000, 0)
    assert theirs.parts["cpu_exec"] == ours.parts["cpu_exec"] + 10_000


def test_the_remainder_starts_anew_where_categories_fill_the_steps() -> None:
    full, part = unite(np.array([0]), np.array([100])), unite(np.array([40]), np.array([60]))
    parts = walk_restarting({"kernel": full, "runtime": part}, np.array([0]), np.array([100]))
    assert parts == {"kernel": 100, "runtime": 20, "other": 80}


@pytest.mark.parametrize(
    "name", ["cpu_only_rank34.pt.trace", "gpu_only_mi210", "minitoy_mi250", "nccl_collectives", "vllm_decode_cudagraph"]
)
def test_parts_equal_the_whole_and_nothing_is_lost(tmp_path: Path, name: str) -> None:
    found = account_trace(_import(name, tmp_path))
    assert len(found.checks) >= 3
    assert all(check.holds for check in found.checks)
    assert [entry.name for entry in found.events if entry.must_be_zero and entry.count] == []


def test_times_finer_than_a_nanosecond_are_counted(tmp_path: Path) -> None:
    events = [step(1, 0, 100), operator("a", 1.25, 5.0625), operator("b", 10.5, 5.000125), operator("c", 20.0004, 1)]
    rank = import_trace(write_trace(tmp_path / "t.json", events), tmp_path / "run").rank()
    assert {entry.name: entry.count for entry in account_trace(rank).events}["Rounded"] == 3


def test_work_without_a_launch_is_counted_as_unlinked(tmp_path: Path) -> None:
    events = [step(1, 0, 100), call(20, 10, 1), kernel("k", 70, 50, 1), kernel("l", 80, 5, 99, stream=8)]
    rank = import_trace(write_trace(tmp_path / "t.json", events), tmp_path / "run").rank()
    counts = {entry.name: entry.count for entry in account_trace(rank).events}
    assert (counts["Unlinked"], counts["Dropped"]) == (1, 0)
