"""Operators, kernels and modules, summed in the ways that they are looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.format import parts
from collector.format.lens import StepRange
from collector.format.run import RankRun, open_run
from profiler_server.analysis.operators.operator_groups import (
    GROUPS,
    NO_MODULE,
    build_module_tree,
    has_modules,
    tabulate_host,
    tabulate_kernels,
    tabulate_modules,
    tabulate_operators,
    tabulate_types,
)
from profiler_server.analysis.operators.operators import (
    DeviceStep,
    order_operators,
    read_kernels,
    read_operators,
    sum_kernels,
    sum_operators,
    summarize_device_steps,
    summarize_kernels,
    summarize_operators,
)
from profiler_server.page import PageRequest
from profiler_server.pages.operators import build
from tests.support.runs import RunPlan, build_run
from tests.support.slices import slice_row, track_rows
from tests.support.tables import kernel, operator, write_rows


def _write(run: Path, table: str, rows: list[dict[str, Any]]) -> RankRun:
    rank = open_run(run).rank(0)
    parts.write_table(parts.build_table_from_rows(table, rows), rank.folder / f"{table}.parquet")
    return rank


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return build_run(tmp_path / "run", RunPlan())


def test_device_self_time_ranks_before_host_self_time(run: Path) -> None:
    rank = _write(
        run,
        "operators",
        [operator("host", self_ns=900), operator("device", device_self_ns=5), operator("small", self_ns=1)],
    )
    assert [row.name for row in summarize_operators(rank)] == ["device", "host", "small"]


def test_flops_stay_unknown_where_no_row_knows_them(run: Path) -> None:
    rank = _write(run, "operators", [operator("a", flops=2.0), operator("a"), operator("b")])
    flops = {row["name"]: row["flops"] for row in sum_operators(read_operators(rank), ("name",)).to_pylist()}
    assert flops == {"a": 2.0, "b": None}


def test_kernels_keep_the_extremes_and_the_mean_of_all_executions(run: Path) -> None:
    rank = _write(
        run,
        "kernels",
        [
            kernel("gemm", count=3, total_ns=300, min_ns=50, max_ns=150),
            kernel("gemm", step=2, count=1, total_ns=500, min_ns=500, max_ns=500),
            kernel("copy", total_ns=7, min_ns=7, max_ns=7),
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
            kernel("a", total_ns=300, occupancy_frac=0.2),
            kernel("a", total_ns=100, occupancy_frac=0.6),
            kernel("a", total_ns=900),
            kernel("b"),
        ],
    )
    occupancy = {row["name"]: row["occupancy_frac"] for row in sum_kernels(read_kernels(rank), ("name",)).to_pylist()}
    assert occupancy["a"] == pytest.approx(0.3)
    assert occupancy["b"] is None


@pytest.fixture
def rank(tmp_path: Path) -> RankRun:
    return open_run(build_run(tmp_path / "run", RunPlan())).rank(0)


def test_overlapping_streams_are_busy_once(rank: RankRun) -> None:
    write_rows(rank.run_path, "tracks", track_rows("stream", "stream", "thread"))
    slices = [
        slice_row(0, 0, 0, 100),
        slice_row(1, 1, 50, 20),
        slice_row(2, 1, 90, 30),
        slice_row(3, 0, 200, 10),
        slice_row(4, 2, 0, 5000, category="operator"),
        slice_row(5, 0, 300, 7, step=2),
        slice_row(6, 0, 400, 0, step=2),
        slice_row(7, 0, 500, 5, step=None),
    ]
    write_rows(rank.run_path, "slices", slices)
    assert summarize_device_steps(rank) == (DeviceStep(1, 4, 210, 130, 80), DeviceStep(2, 1, 7, 7, 0))


def test_only_operators_of_that_step_are_numbered_and_each_once(rank: RankRun) -> None:
    write_rows(rank.run_path, "tracks", track_rows("thread"))
    named = (("a", 5, 1), ("b", 10, 2), ("c", 20, 2), ("b", 30, 2), ("a", 40, 2))
    slices = [
        slice_row(number, 0, at, 5, name=name, step=step, category="operator")
        for number, (name, at, step) in enumerate(named)
    ]
    write_rows(rank.run_path, "slices", [*slices, slice_row(9, 0, 12, 1, name="call", step=2, category="runtime")])
    assert order_operators(rank, 2).to_pylist() == [
        {"name": "b", "order": 1},
        {"name": "c", "order": 2},
        {"name": "a", "order": 3},
    ]


@pytest.mark.parametrize("group", ["types", "operators", "host", "modules"])
def test_the_shares_of_a_group_sum_to_one(rank: RankRun, group: str) -> None:
    table = GROUPS[group].tabulate(rank, None)
    assert sum(table.rows["share_frac"].to_pylist()) == pytest.approx(1.0, abs=1e-9)
    assert table.steps == (10, 11, 12)


def test_a_run_with_device_time_is_measured_on_the_device(rank: RankRun) -> None:
    write_rows(
        rank.run_path, "operators", [operator("a", device_self_ns=30, device_total_ns=40), operator("b", self_ns=90)]
    )
    table = tabulate_operators(rank)
    rows = {row["name"]: row for row in table.rows.to_pylist()}
    assert table.measure == "device"
    assert (rows["a"]["share_frac"], rows["a"]["mean_ns"], rows["b"]["share_frac"]) == (1.0, 20.0, 0.0)


def test_the_host_group_stays_on_the_host_and_keeps_the_order_of_calls(rank: RankRun) -> None:
    write_rows(
        rank.run_path,
        "operators",
        [
            operator("aten::relu", step=10, device_self_ns=900, self_ns=25),
            operator("aten::mm", step=10, self_ns=75),
            operator("aten::late", step=11, self_ns=0),
        ],
    )
    rows = {row["name"]: row for row in tabulate_host(rank).rows.to_pylist()}
    assert (rows["aten::mm"]["order"], rows["aten::relu"]["order"], rows["aten::late"]["order"]) == (3, 5, None)
    assert rows["aten::mm"]["share_frac"] == 0.75


def test_host_times_stand_without_a_timeline(rank: RankRun) -> None:
    (rank.folder / "slices.parquet").unlink()
    assert set(tabulate_host(rank).rows["order"].to_pylist()) == {None}


def test_kernels_are_told_apart_by_owner_stream_and_shape(rank: RankRun) -> None:
    rows = [
        kernel("gemm", operator="aten::mm", grid="[8,1,1]"),
        kernel("gemm", operator="aten::mm", grid="[8,1,1]", step=2),
        kernel("gemm", operator="aten::bmm"),
        kernel("gemm", operator="aten::mm", stream=20),
    ]
    write_rows(rank.run_path, "kernels", rows)
    table = tabulate_kernels(rank)
    assert sorted(table.rows["count"].to_pylist()) == [1, 1, 2]
    assert sum(table.rows["share_frac"].to_pylist()) == pytest.approx(1.0)


def test_modules_keep_what_ran_outside_of_them(rank: RankRun) -> None:
    assert not has_modules(rank)
    write_rows(rank.run_path, "operators", [operator("a", module="net.conv1"), operator("b", module=None)])
    assert has_modules(rank)
    assert sorted(tabulate_modules(rank).rows["module"].to_pylist()) == [NO_MODULE, "net.conv1"]


def test_a_range_of_steps_leaves_out_the_others(rank: RankRun) -> None:
    write_rows(rank.run_path, "operators", [operator("a", step=1), operator("a", step=2), operator("b", step=None)])
    table = tabulate_operators(rank, StepRange(2, 9))
    assert (table.rows["name"].to_pylist(), table.rows["count"].to_pylist()) == (["a"], [2])
    assert (table.steps, table.outside) == ((2,), False)
    assert tabulate_operators(rank).outside


def test_no_time_at_all_is_a_share_of_zero(rank: RankRun) -> None:
    write_rows(rank.run_path, "operators", [operator("a", self_ns=0, total_ns=0, count=0)])
    row = tabulate_types(rank).rows.to_pylist()[0]
    assert (row["share_frac"], row["mean_ns"]) == (0.0, None)


@pytest.fixture
def module_run(tmp_path: Path) -> Path:
    path = build_run(tmp_path / "module_run", RunPlan())
    rows = [
        operator("aten::mm", module="Net_0.Block_0.Linear_0", device_self_ns=60, self_ns=6),
        operator("aten::mm", module="Net_0.Block_1", device_self_ns=10, self_ns=1),
        operator("aten::add", module="Net_0", device_self_ns=20, self_ns=2),
        operator("aten::copy_", device_self_ns=10, self_ns=1),
    ]
    write_rows(path, "operators", rows)
    return path


def test_a_module_holds_the_time_of_those_inside(module_run: Path) -> None:
    tree = build_module_tree(open_run(module_run).rank(0))
    assert [(node.name, node.depth, node.device_ns, node.own_device_ns, node.host_ns) for node in tree] == [
        ("Net_0", 0, 90, 20, 9),
        ("Block_0", 1, 60, 0, 6),
        ("Linear_0", 2, 60, 60, 6),
        ("Block_1", 1, 10, 10, 1),
        (NO_MODULE, 0, 10, 10, 1),
    ]
    assert tree[0].share_frac == pytest.approx(0.9)
    assert sum(node.own_device_ns for node in tree) == 100


def test_the_tree_stands_on_the_tab_of_modules_only(module_run: Path) -> None:
    def lines(group: str) -> list[str]:
        page = build(PageRequest(open_run(module_run), "module_run", 0, (0,), {"group": group}))
        return [line.name for line in page.modules.lines] if page.modules else []

    assert lines("modules") == ["Net_0", "Block_0", "Linear_0", "Block_1", NO_MODULE]
    assert lines("types") == []
