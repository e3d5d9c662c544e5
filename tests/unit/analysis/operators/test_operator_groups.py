"""The operator table in the ways that it is looked at."""

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
    has_modules,
    tabulate_host,
    tabulate_kernels,
    tabulate_modules,
    tabulate_operators,
    tabulate_types,
)
from tests.support.runs import RunPlan, build_run


@pytest.fixture
def rank(tmp_path: Path) -> RankRun:
    return open_run(build_run(tmp_path / "run", RunPlan())).rank(0)


def _write(rank: RankRun, table: str, rows: list[dict[str, Any]]) -> None:
    parts.write_table(parts.build_table_from_rows(table, rows), rank.folder / f"{table}.parquet")


def _operator(name: str, **columns: Any) -> dict[str, Any]:
    times = {"total_ns": 10, "self_ns": 10, "device_total_ns": 0, "device_self_ns": 0}
    return {"step": 1, "name": name, "type": "other", "count": 2, **times, **columns}


def _kernel(name: str, **columns: Any) -> dict[str, Any]:
    where = {"step": 1, "device": 0, "stream": 7, "tensor_core": False, "collective": False}
    return {**where, "name": name, "count": 1, "total_ns": 100, "min_ns": 100, "max_ns": 100, **columns}


@pytest.mark.parametrize("group", ["types", "operators", "host", "modules"])
def test_the_shares_of_a_group_sum_to_one(rank: RankRun, group: str) -> None:
    table = GROUPS[group].tabulate(rank, None)
    assert sum(table.rows["share_frac"].to_pylist()) == pytest.approx(1.0, abs=1e-9)
    assert table.steps == (10, 11, 12)


def test_a_run_with_device_time_is_measured_on_the_device(rank: RankRun) -> None:
    _write(rank, "operators", [_operator("a", device_self_ns=30, device_total_ns=40), _operator("b", self_ns=90)])
    table = tabulate_operators(rank)
    rows = {row["name"]: row for row in table.rows.to_pylist()}
    assert table.measure == "device"
    assert (rows["a"]["share_frac"], rows["a"]["mean_ns"], rows["b"]["share_frac"]) == (1.0, 20.0, 0.0)


def test_the_host_group_stays_on_the_host_and_keeps_the_order_of_calls(rank: RankRun) -> None:
    _write(
        rank,
        "operators",
        [
            _operator("aten::relu", step=10, device_self_ns=900, self_ns=25),
            _operator("aten::mm", step=10, self_ns=75),
            _operator("aten::late", step=11, self_ns=0),
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
        _kernel("gemm", operator="aten::mm", grid="[8,1,1]"),
        _kernel("gemm", operator="aten::mm", grid="[8,1,1]", step=2),
        _kernel("gemm", operator="aten::bmm"),
        _kernel("gemm", operator="aten::mm", stream=20),
    ]
    _write(rank, "kernels", rows)
    table = tabulate_kernels(rank)
    assert sorted(table.rows["count"].to_pylist()) == [1, 1, 2]
    assert sum(table.rows["share_frac"].to_pylist()) == pytest.approx(1.0)


def test_modules_keep_what_ran_outside_of_them(rank: RankRun) -> None:
    assert not has_modules(rank)
    _write(rank, "operators", [_operator("a", module="net.conv1"), _operator("b", module=None)])
    assert has_modules(rank)
    assert sorted(tabulate_modules(rank).rows["module"].to_pylist()) == [NO_MODULE, "net.conv1"]


def test_a_range_of_steps_leaves_out_the_others(rank: RankRun) -> None:
    _write(rank, "operators", [_operator("a", step=1), _operator("a", step=2), _operator("b", step=None)])
    table = tabulate_operators(rank, StepRange(2, 9))
    assert (table.rows["name"].to_pylist(), table.rows["count"].to_pylist()) == (["a"], [2])
    assert (table.steps, table.outside) == ((2,), False)
    assert tabulate_operators(rank).outside


def test_no_time_at_all_is_a_share_of_zero(rank: RankRun) -> None:
    _write(rank, "operators", [_operator("a", self_ns=0, total_ns=0, count=0)])
    row = tabulate_types(rank).rows.to_pylist()[0]
    assert (row["share_frac"], row["mean_ns"]) == (0.0, None)
