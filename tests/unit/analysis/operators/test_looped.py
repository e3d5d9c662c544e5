"""Loops over the rows of a tensor are told by what is taken out of it, and by how often operators are called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from collector.format.phases import PHASE_NAMES
from profiler_server.analysis.operators.avoidable import find_looped_rows
from profiler_server.facts.steps import LoopedRows
from tests.support.must import must
from tests.support.own_work import ONE_BY_ONE, call_operators
from tests.support.plants import Plant, build_case_run, plan_of
from tests.support.row_edits import Row
from tests.support.runs import HEALTHY_STEP_MS, MS

PHASES_NS = {name: HEALTHY_STEP_MS[name] * MS for name in PHASE_NAMES}
ROWS, WIDTH = 32, 16


def find(path: Path, operators: list[Row], micro_batches: int = 1, batch_size: int | None = 32) -> LoopedRows | None:
    run = build_case_run(path / "run", Plant(plan_of(), tables={"operators": operators}))
    return find_looped_rows(run.rank(0), PHASES_NS, micro_batches, batch_size)


def test_what_one_call_saves_is_the_phase_less_its_other_operators_and_the_work(tmp_path: Path) -> None:
    found = must(find(tmp_path, call_operators(*ONE_BY_ONE)))
    assert (found.rows, found.calls, found.is_free, found.holds_batches) == (32, 96, True, False)
    assert found.names == ("aten::linear", "aten::select")
    forward, backward = found.phases
    # Seen are 16.1 ms and 64 times Python; 15.04 of it, over 30 us a call, are work, and half of the rest is sure. Two calls stay.
    assert forward.low_ns == pytest.approx((0.5 * (16.132 - 15.04) - 0.004) * MS)
    assert forward.high_ns == pytest.approx((16.132 - 15.04 - 0.004) * MS)
    assert backward.low_ns == pytest.approx((0.5 * 30.016 - 0.002) * MS)
    assert backward.high_ns == pytest.approx((30.016 - 0.002) * MS)


def test_a_loop_takes_no_more_than_other_operators_leave_of_the_phase(tmp_path: Path) -> None:
    others = ("forward", "aten::mm", "[[64,64],[64,64]]", 1, 12.0)
    found = must(
        find(tmp_path, call_operators(*ONE_BY_ONE[:1], ("forward", "aten::mul", "[[64],[64]]", 640, 19.0), others))
    )
    forward = found.phases[0]
    assert forward.low_ns == pytest.approx((20 - 11.97 - 0.0025 - 0.004) * MS)
    assert forward.high_ns == pytest.approx((20 - 11.97 - 0.004) * MS)


def test_arithmetic_that_is_known_stays(tmp_path: Path) -> None:
    flops = find(tmp_path / "a", call_operators(*ONE_BY_ONE[:2], flops=60e6))
    moved = find(tmp_path / "b", call_operators(*ONE_BY_ONE[:2], moved_bytes=10e6))
    assert flops is not None
    assert moved is not None
    for found in (flops, moved):
        assert found.phases[0].high_ns == pytest.approx((16.132 - 2 * 1.0 - 0.004) * MS)


@pytest.mark.parametrize(
    ("shapes", "count", "batch_size", "rows"),
    [
        ("[[16,64],[],[]]", 16, 16, 16),
        ("[[15,64],[],[]]", 15, 15, None),
        ("[[16,64],[],[]]", 15, 16, None),
        ("[[],[],[]]", 64, 16, None),
        ("null", 64, 16, None),
        ("[[1e999]]", 64, 16, None),
    ],
)
def test_a_loop_takes_out_every_row_of_many(
    shapes: str, count: int, batch_size: int, rows: int | None, tmp_path: Path
) -> None:
    operators = call_operators(("forward", "aten::select", shapes, count, 1.0))
    found = find(tmp_path, operators, batch_size=batch_size)
    assert (None if found is None else found.rows) == rows


def test_micro_batches_are_counted_one_by_one(tmp_path: Path) -> None:
    operators = call_operators(("forward", "aten::select", "[[32,64],[],[]]", 32, 1.0))
    assert find(tmp_path / "a", operators, micro_batches=2) is None
    assert find(tmp_path / "b", operators, micro_batches=1) is not None


def test_numbers_of_some_rows_belong_to_the_loop_whatever_their_shapes(tmp_path: Path) -> None:
    ragged = [("forward", "aten::max", f"[[{size}]]", 1, 0.5) for size in range(2, 12)]
    found = find(tmp_path / "a", call_operators(*ONE_BY_ONE, *ragged))
    others = find(tmp_path / "b", call_operators(*ONE_BY_ONE, ("forward", "aten::max", "[[33]]", 1, 0.5)))
    assert found is not None
    assert others is not None
    assert (found.calls, others.calls) == (96 + 10, 96)


@pytest.mark.parametrize(
    ("names", "is_loop"),
    [
        (("aten::gru_cell",), False),
        (("aten::gru",), False),
        (("aten::lstm",), False),
        (("aten::lstm", "aten::mkldnn_rnn_layer"), True),
    ],
)
def test_recurrent_networks_go_over_time(names: tuple[str, ...], is_loop: bool, tmp_path: Path) -> None:
    cells = [("forward", name, "[[64],[64]]", 32, 4.0) for name in names]
    assert (find(tmp_path, call_operators(*ONE_BY_ONE, *cells)) is not None) == is_loop


@pytest.mark.parametrize(("count", "is_loop"), [(32, True), (31, False), (96, False)])
def test_slices_are_rows_where_there_is_one_for_each(count: int, is_loop: bool, tmp_path: Path) -> None:
    operators = call_operators(("forward", "aten::slice", "[[32,64],[],[]]", count, 1.0))
    assert (find(tmp_path, operators) is not None) == is_loop


@pytest.mark.parametrize(("name", "is_free"), [("aten::select", False), ("aten::index", True)])
def test_rows_that_are_no_samples_may_need_each_other(name: str, is_free: bool, tmp_path: Path) -> None:
    found = must(find(tmp_path, call_operators(("forward", name, "[[200,64],[],[]]", 200, 9.0))))
    assert (found.rows, found.is_free) == (200, is_free)


@pytest.mark.parametrize(("batch_size", "is_loop"), [(32, True), (8, False)])
def test_samples_may_get_gradients_one_by_one(batch_size: int, is_loop: bool, tmp_path: Path) -> None:
    operators = call_operators(("backward", "aten::select", "[[32,1],[],[]]", 63, 9.0))
    assert (find(tmp_path, operators, batch_size=batch_size) is not None) == is_loop


@pytest.mark.parametrize(
    ("shape", "count", "name", "inputs", "told"),
    [
        ([32, 20, 8], 32, "linear", [[1, 8], [8, 8]], "free"),
        ([32, 32, 8], 32, "linear", [[8], [32, 8]], "free"),
        ([32, 32, 8], 32, "linear", [[32, 8], [8, 8]], "nothing"),  # as many steps in time as samples
        ([32, 32, 8], 32, "mul", [[32, 8], [32, 8]], "rows"),
        ([32, 60, 8], 60, "mul", [[32, 8], [32, 8]], "nothing"),
        ([32, 20, 8], 40, "mul", [[32, 8], [32, 8]], "rows"),
        ([32, 48], 96, "matmul", [[32, 20, 8], [8, 8]], "nothing"),
        ([32, 32], 992, "sub", [[32], [32]], "free"),  # pairs
    ],
)
def test_columns_are_not_taken_for_rows(
    shape: list[int], count: int, name: str, inputs: list[list[int]], told: str, tmp_path: Path
) -> None:
    found = find(
        tmp_path,
        call_operators(
            ("forward", "aten::select", json.dumps([shape, [], []]), count, 1.0),
            ("forward", f"aten::{name}", json.dumps(inputs), count, 9.0),
        ),
    )
    assert told == ("nothing" if found is None or found.holds_batches else "free" if found.is_free else "rows")


@pytest.mark.parametrize(("batch_size", "rows"), [(64, 64), (8, 40)])
def test_rows_are_those_of_the_batch_or_of_a_matrix(batch_size: int, rows: int, tmp_path: Path) -> None:
    takes = [("forward", "aten::select", shapes, 2560, 1.0) for shapes in ("[[40,64],[],[]]", "[[64],[],[]]")]
    found = must(find(tmp_path, call_operators(*takes), batch_size=batch_size))
    assert found.rows == rows


def test_the_shortest_of_several_steps_counts(tmp_path: Path) -> None:
    once = call_operators(*ONE_BY_ONE)
    late = [{**row, "self_ns": 3 * row["self_ns"]} for row in call_operators(*ONE_BY_ONE, step=12)]
    assert find(tmp_path / "a", once) == find(tmp_path / "b", once + late)
