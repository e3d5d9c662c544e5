"""Operators and kernels, summed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.format import parts
from collector.format.run import RankRun, open_run
from profiler_server.analysis.operators.operators import (
    read_kernels,
    read_operators,
    sum_kernels,
    sum_operators,
    summarize_kernels,
    summarize_operators,
    summarize_types,
)
from tests.support.runs import RunPlan, build_run


def _write(run: Path, table: str, rows: list[dict[str, Any]]) -> RankRun:
    rank = open_run(run).rank(0)
    parts.write_table(parts.build_table_from_rows(table, rows), rank.folder / f"{table}.parquet")
    return rank


def _operator(name: str, **columns: Any) -> dict[str, Any]:
    times = {"total_ns": 10, "self_ns": 10, "device_total_ns": 0, "device_self_ns": 0}
    return {"step": 1, "name": name, "type": "other", "count": 1, **times, **columns}


def _kernel(name: str, **columns: Any) -> dict[str, Any]:
    where = {"step": 1, "device": 0, "stream": 7, "tensor_core": False, "collective": False}
    return {**where, "name": name, "count": 1, "total_ns": 100, "min_ns": 100, "max_ns": 100, **columns}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return build_run(tmp_path / "run", RunPlan())


def test_operators_are_summed_over_the_steps_of_the_window(run: Path) -> None:
    rows = summarize_operators(open_run(run).rank(0))
    assert rows[0].name == "aten::convolution_backward"
    assert (rows[0].count, rows[0].total_ns, rows[0].self_ns) == (24, 60_000_000, 54_000_000)


def test_device_self_time_ranks_before_host_self_time(run: Path) -> None:
    rank = _write(
        run,
        "operators",
        [_operator("host", self_ns=900), _operator("device", device_self_ns=5), _operator("small", self_ns=1)],
    )
    assert [row.name for row in summarize_operators(rank)] == ["device", "host", "small"]


def test_a_type_holds_its_operators_and_the_self_times_add_up(run: Path) -> None:
    rank = open_run(run).rank(0)
    types = {row.type: row for row in summarize_types(rank)}
    assert types["convolution"].operators == 2
    assert types["convolution"].count == 48
    assert sum(row.self_ns for row in types.values()) == sum(row.self_ns for row in summarize_operators(rank))


def test_operators_can_be_summed_by_shape_and_by_step(run: Path) -> None:
    rank = _write(
        run,
        "operators",
        [
            _operator("aten::mm", step=1, input_shapes="[[1]]", count=2, self_ns=10),
            _operator("aten::mm", step=2, input_shapes="[[1]]", count=3, self_ns=20),
            _operator("aten::mm", step=2, input_shapes=None, count=1, self_ns=5),
        ],
    )
    data = read_operators(rank, ("input_shapes",))
    shapes = sum_operators(data, ("input_shapes",)).to_pylist()
    assert [(row["input_shapes"], row["count"]) for row in shapes] == [("[[1]]", 5), (None, 1)]
    assert {row["step"]: row["self_ns"] for row in sum_operators(data, ("step",)).to_pylist()} == {1: 10, 2: 25}


def test_flops_stay_unknown_where_no_row_knows_them(run: Path) -> None:
    rank = _write(run, "operators", [_operator("a", flops=2.0), _operator("a"), _operator("b")])
    flops = {row["name"]: row["flops"] for row in sum_operators(read_operators(rank), ("name",)).to_pylist()}
    assert flops == {"a": 2.0, "b": None}


def test_kernels_keep_the_extremes_and_the_mean_of_all_executions(run: Path) -> None:
    rank = _write(
        run,
        "kernels",
        [
            _kernel("gemm", count=3, total_ns=300, min_ns=50, max_ns=150),
            _kernel("gemm", step=2, count=1, total_ns=500, min_ns=500, max_ns=500),
            _kernel("copy", total_ns=7, min_ns=7, max_ns=7),
        ],
    )
    rows = summarize_kernels(rank)
    assert [row.name for row in rows] == ["gemm", "copy"]
    assert (rows[0].count, rows[0].total_ns, rows[0].mean_ns) == (4, 800, 200.0)
    assert (rows[0].min_ns, rows[0].max_ns) == (50, 500)


def test_kernel_occupancy_is_weighed_by_time_and_leaves_out_what_is_unknown(run: Path) -> None:
    rank = _write(
        run,
        "kernels",
        [
            _kernel("a", total_ns=300, occupancy_frac=0.2),
            _kernel("a", total_ns=100, occupancy_frac=0.6),
            _kernel("a", total_ns=900),
            _kernel("b"),
        ],
    )
    occupancy = {row["name"]: row["occupancy_frac"] for row in sum_kernels(read_kernels(rank), ("name",)).to_pylist()}
    assert occupancy["a"] == pytest.approx(0.3)
    assert occupancy["b"] is None


def test_a_run_without_a_window_has_no_operators_and_no_kernels(tmp_path: Path) -> None:
    rank = open_run(build_run(tmp_path / "run", RunPlan(operators=False))).rank(0)
    assert summarize_operators(rank) == ()
    assert summarize_types(rank) == ()
    assert summarize_kernels(rank) == ()
