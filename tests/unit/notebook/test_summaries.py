"""Tables of a run on a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.parts import build_table_from_rows
from collector.notebook.run import open_run
from collector.notebook.summaries import describe_host_operators, describe_kernels, describe_operators
from collector.traces.importing import import_trace
from tests.support.runs import RunPlan, build_run
from tests.support.traces import training_steps, write_trace


def test_steps_are_printed_with_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_run(build_run(tmp_path / "run")).print_steps()
    header, columns, step, *phases = capsys.readouterr().out.splitlines()
    assert header == "Training steps, in ms. 3 steps left out: detailed windows."
    assert columns.split() == ["count", "min", "max", "mean", "median", "p90", "p95", "p97", "p99", "p99.9"]
    assert step.split()[:5] == ["step", "37", "62.720", "65.280", "64.000"]
    assert [line.split("  ")[0].strip() for line in phases][:2] == ["Gap", "Data wait"]


def test_operators_are_printed_by_self_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_run(build_run(tmp_path / "run")).print_operators()
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split() == ["aten::convolution_backward", "24", "60.000", "54.000", "2,500.0"]


def test_host_operators_are_numbered_in_order_of_their_first_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_run(build_run(tmp_path / "run")).print_host_operators()
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "Host operators of step 10 in the order of their first start."
    assert [line.split()[:2] for line in out[2:4]] == [
        ["1", "aten::convolution_backward"],
        ["2", "aten::mkldnn_convolution"],
    ]


def test_many_host_operators_keep_the_order_of_their_first_start() -> None:
    names = [f"aten::operator_{number}" for number in range(40)]
    rows = [
        {"id": at, "track": 1, "depth": 0, "start_ns": at, "duration_ns": 1, "step": 3, "name": name}
        for at, name in enumerate(name for at, name in enumerate(names) for name in (name, names[at // 2]))
    ]
    slices = build_table_from_rows("slices", [{**row, "category": "operator"} for row in rows])
    assert [line.split()[1] for line in describe_host_operators(slices).splitlines()[2:]] == names


def test_summary_counts_the_ranks_that_are_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    traces = [
        write_trace(
            tmp_path / f"rank{rank}.json", training_steps(), {"distributedInfo": {"rank": rank, "world_size": 128}}
        )
        for rank in (3, 7)
    ]
    open_run(import_trace(traces, tmp_path / "part").path).print_summary(rank=7)
    assert capsys.readouterr().out.splitlines()[0] == "part: imported, 2 of 128 ranks, this is rank 7"


def test_summary_says_that_a_cut_off_run_is_recovered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    open_run(build_run(tmp_path / "cut", RunPlan(steps=3, state="crashed"))).print_summary()
    assert capsys.readouterr().out.startswith("cut: crashed, recovered, 1 rank, ")


def test_empty_data_gets_a_plain_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = open_run(build_run(tmp_path / "run", RunPlan(steps=0, operators=False)))
    run.print_steps()
    run.print_operators()
    run.print_host_operators()
    assert capsys.readouterr().out.splitlines() == [
        "No training step and no evaluation batch was recorded.",
        "This run has no operators table.",
        "This run has no slices table.",
    ]
    assert describe_operators(build_table_from_rows("operators", [])).startswith("No operators were recorded")


def test_device_operators_are_printed_by_mean() -> None:
    rows = [
        {
            "name": name,
            "device": 0,
            "stream": 7,
            "tensor_core": False,
            "collective": False,
            "count": count,
            "total_ns": total,
            "min_ns": 1,
            "max_ns": total,
        }
        for name, count, total in (("gemm", 4, 8_000), ("relu", 1, 1_000), ("gemm", 1, 7_000))
    ]
    lines = describe_kernels(build_table_from_rows("kernels", rows)).splitlines()
    assert [line.split() for line in lines[2:]] == [["gemm", "3.0", "5"], ["relu", "1.0", "1"]]
