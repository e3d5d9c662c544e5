"""Kinds of work by their operators, and operators as wide as the batch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from collector.traces.families import find_family
from profiler_server.analysis.operators.avoidable import find_wide_shares
from profiler_server.analysis.operators.kinds import find_kinds
from profiler_server.analysis.stacks.line_work import weigh_nodes
from profiler_server.facts.steps import Kinds
from tests.support.cases import Plant, build_case_run
from tests.support.own_work import ATTENTION, call_operators
from tests.support.plants import plan_of
from tests.support.row_edits import Row
from tests.support.runs import HEALTHY_STEP_MS

STEP_MS = sum(HEALTHY_STEP_MS.values())
"""The length of the detailed step."""


def find(path: Path, *calls: tuple[str, str, str, int, float]) -> Kinds:
    rows: list[Row] = [{**row, "type": find_family(row["name"])} for row in call_operators(*calls)]
    run = build_case_run(path / "run", Plant(plan_of(), tables={"operators": rows, "slices": []}))
    return find_kinds(run.rank(0))


def test_convolutions_of_images_count_and_those_of_sequences_do_not(tmp_path: Path) -> None:
    images, sequences = "[[8,3,32,32],[16,3,3,3]]", "[[8,3,32],[16,3,3]]"
    found = find(
        tmp_path,
        ("forward", "aten::convolution", images, 1, 8.0),
        ("backward", "aten::convolution_backward", images, 1, 8.0),
        ("forward", "aten::convolution", sequences, 1, 8.0),
    )
    shares = (found.convolutions_frac, found.large_frac)
    assert shares == pytest.approx((16 / STEP_MS, 24 / STEP_MS))
    assert replace(found, convolutions_frac=0.0, large_frac=None) == Kinds()


@pytest.mark.parametrize(
    ("name", "dtype", "flops", "ms", "is_slow"),
    [
        ("aten::mm", "float", 10_000_000, 1.01, True),
        ("aten::mm", "float", 10_000_000, 0.99, False),
        ("aten::mm", "float", 9_999_999, 2.0, False),
        ("aten::mm", "double", 10_000_000, 2.0, False),
        ("aten::mul", "float", 10_000_000, 2.0, False),
    ],
)
def test_large_products_in_float32_at_a_low_rate_are_slow(
    name: str, dtype: str, flops: int, ms: float, is_slow: bool, tmp_path: Path
) -> None:
    (row,) = call_operators(("backward", name, "[[64,5000],[5000,80]]", 3, 3 * ms))
    row |= {"type": find_family(name), "flops": 3 * flops, "input_dtypes": f'["{dtype}","{dtype}"]'}
    run = build_case_run(tmp_path / "run", Plant(plan_of(), tables={"operators": [row], "slices": []}))
    assert find_kinds(run.rank(0)).slow_products_frac == pytest.approx(3 * ms / STEP_MS if is_slow else 0.0)


def test_gradients_that_are_filled_with_zeros_are_kept(tmp_path: Path) -> None:
    zeros = ("optimizer", "aten::_foreach_zero_", "[]", 1, 2.0)
    sums = ("backward", "aten::add_", "[[8,8],[8,8],[]]", 4, 3.0)
    assert find(tmp_path / "a", zeros, sums).kept_frac == pytest.approx(5.0 / STEP_MS)
    others = ("forward", "aten::zero_", "[[8,8]]", 1, 2.0), ("forward", "aten::add_", "[[8,8],[8,8],[]]", 4, 3.0)
    assert find(tmp_path / "b", zeros, *others).kept_frac == pytest.approx(2.0 / STEP_MS)
    assert find(tmp_path / "c", sums, *others).kept_frac == 0, "gradients of several batches are added, too"


OF_SCORES_MS = 16.0


def test_attention_is_a_softmax_between_two_products_whoever_calls_it(tmp_path: Path) -> None:
    found = find(tmp_path / "a", *ATTENTION)
    assert found.scores_frac == pytest.approx(OF_SCORES_MS / STEP_MS)
    math = ("forward", "aten::_scaled_dot_product_attention_math", "[[2,4,64,16]]", 1, 0.0)
    drops = ("forward", "aten::bernoulli_", "[[2,4,64,64],[]]", 1, 0.0)
    assert find(tmp_path / "b", *ATTENTION, math) == replace(found, is_fallback=True)
    assert find(tmp_path / "c", *ATTENTION, drops) == replace(found, drops_scores=True)


@pytest.mark.parametrize("left_out", [0, 2, 3])
def test_a_softmax_without_both_products_is_none(left_out: int, tmp_path: Path) -> None:
    calls = [call for number, call in enumerate(ATTENTION) if number != left_out]
    assert find(tmp_path, *calls).scores_frac == 0


def test_lookups_with_dense_gradients_are_known_with_the_rows_that_they_read(tmp_path: Path) -> None:
    lookup = ("forward", "aten::embedding", "[[1000,8],[5,10]]", 2, 1.0)
    dense = ("backward", "aten::embedding_dense_backward", "[[5,10,8],[5,10]]", 2, 16.0)
    found = find(tmp_path / "a", lookup, dense)
    shares = (found.lookups_frac, found.rows_frac, found.table_parameters)
    assert shares == pytest.approx((16 / STEP_MS, 0.05, 8000))
    wide = (*lookup[:2], "[[1000,8],[5,30]]", 2, 1.0)
    assert find(tmp_path / "d", lookup, wide, dense).rows_frac == pytest.approx(0.1), "each lookup fills all rows"
    assert find(tmp_path / "b", lookup).lookups_frac == 0, "sparse gradients"
    tied = ("forward", "aten::mm", "[[50,8],[8,1000]]", 1, 1.0)
    assert find(tmp_path / "c", lookup, dense, tied).lookups_frac == 0, "the weight of a layer, too"


def test_small_operators_of_the_backward_and_large_ones_are_counted(tmp_path: Path) -> None:
    found = find(
        tmp_path,
        ("backward", "aten::mul", "[[4],[4]]", 120, 120 * 0.059),
        ("backward", "aten::add", "[[4],[4]]", 120, 120 * 0.061),
        ("optimizer", "aten::mul", "[[4],[4]]", 120, 1.0),
        ("forward", "aten::mm", "[[4,4],[4,4]]", 10, 10 * 0.11),
    )
    assert found.pointwise_calls == 120
    assert found.large_frac == pytest.approx(1.1 / STEP_MS)


@pytest.mark.parametrize(
    ("strides", "weights", "is_last"),
    [
        ([3072, 1, 96, 3], [27, 9, 3, 1], True),
        ([3072, 1024, 32, 1], [27, 9, 3, 1], False),
        ([3072, 1024, 32], [27, 9, 3], None),
        (None, None, None),
    ],
)
def test_the_memory_format_shows_in_strides(
    strides: list[int] | None, weights: list[int] | None, is_last: bool | None, tmp_path: Path
) -> None:
    sizes = [[8, 3, 32, 32][: len(strides or ())], [16, 3, 3, 3][: len(weights or ())]]
    args = json.dumps({"Input Dims": sizes, "Input Strides": [strides, weights]} if strides else {})
    convolution: Row = {"id": 0, "track": 0, "depth": 0, "start_ns": 0, "duration_ns": 1000, "category": "operator"}
    convolution |= {"name": "aten::convolution", "args": args}
    operators = call_operators(("forward", "aten::convolution", "[[8,3,32,32],[16,3,3,3]]", 1, 8.0))
    run = build_case_run(tmp_path / "run", Plant(plan_of(), tables={"operators": operators, "slices": [convolution]}))
    assert find_kinds(run.rank(0)).has_channels_last is is_last


TIMES = {"total_ns": 0, "device_total_ns": 0, "device_self_ns": 0}


def call(name: str, shapes: str, seconds: float, count: int = 1, phase: str = "forward") -> Row:
    row = {"step": 11, "name": name, "type": "other", "phase": phase, "input_shapes": shapes}
    return {**row, **TIMES, "self_ns": round(seconds * 10**9), "count": count}


EMBED = call("aten::embedding", "[[900,16],[8,40]]", 30)
PROJECT = call("aten::addmm", "[[4],[320,16],[16,4]]", 20, phase="backward")
NORM = call("aten::linalg_vector_norm", "[[900,16]]", 50)
CELL = call("aten::gru_cell", "[[8,16],[8,16]]", 100, count=40)
STRIDED = call("aten::convolution", "[[8,4,20],[16,4,3]]", 50)
NARROW = call("aten::convolution", "[[8,4,10],[16,4,3]]", 50)
UPDATE = call("aten::_foreach_add_", "[[40,40]]", 500, phase="optimizer")
SCORES = call("aten::bmm", "[[16,40,8],[16,8,40]]", 60)
WEIGHTS = call("aten::mm", "[[16,320],[320,16]]", 60, phase="backward")
PAIRS = call("aten::mul", "[[12800,4],[12800,1]]", 40)
FLASH = call("aten::_scaled_dot_product_flash_attention_for_cpu", "[[8,2,40,8],[8,2,40,8],[8,2,40,8]]", 40)
PACK = call("aten::_pack_padded_sequence", "[[8,40,16],[8]]", 1)


@pytest.mark.parametrize(
    ("rows", "shares"),
    [
        ([EMBED, PROJECT, NORM], (0.5, 0.0)),
        ([NORM], (0.0, 0.0)),
        ([CELL, UPDATE, call("aten::gru_cell", "[[8,16]]", 100, count=39)], (0.5, 0.0)),
        ([EMBED, PROJECT, NORM, PACK], (0.0, 0.0)),
        ([STRIDED, NARROW], (0.5, 0.0)),
        ([SCORES, WEIGHTS], (0.5, 0.5)),
        ([PAIRS, FLASH, PROJECT], (0.2, 0.8)),
        ([UPDATE], None),
        ([], None),
    ],
    ids=[
        "wide",
        "none",
        "once for each position",
        "packed",
        "behind a stride",
        "products of two wide inputs",
        "pairs and attention",
        "no model",
        "no window",
    ],
)
def test_operators_as_wide_as_the_batch_grow_with_it(
    rows: list[Row], shares: tuple[float, float] | None, tmp_path: Path
) -> None:
    run = build_case_run(tmp_path / "run", Plant(tables={"operators": rows} if rows else {}))
    found = find_wide_shares(run.rank(0), 40, 8)
    assert found == (None if shares is None else pytest.approx(shares, abs=1e-4))


def test_on_a_device_kernels_grow_with_the_batch_and_not_their_launches(tmp_path: Path) -> None:
    wide = {**call("aten::mm", "[[320,64],[64,64]]", 1), "device_self_ns": 30}
    other = {**call("aten::mm", "[[64,64],[64,64]]", 90), "device_self_ns": 10}
    update = {**call("aten::add_", "[[64,64]]", 5), "device_self_ns": 20, "phase": "optimizer"}
    run = build_case_run(tmp_path / "run", Plant(tables={"operators": [wide, other, update]}))
    assert find_wide_shares(run.rank(0), 40, 8) == pytest.approx((0.5, 0.0))


def test_calls_and_the_time_between_operators_do_not_grow_with_the_batch(tmp_path: Path) -> None:
    rows = [call("aten::embedding", "[[900,16],[8,40]]", 20e-6, count=2)]
    plan = plan_of(forward=0.06, backward=0.04)
    run = build_case_run(tmp_path / "run", Plant(plan, tables={"operators": rows}))
    assert find_wide_shares(run.rank(0), 40, 8) == pytest.approx((0.1, 0.0), rel=0.05)


@pytest.mark.parametrize(
    ("name", "factorises"),
    [("aten::linalg_cholesky_ex", True), ("aten::_linalg_slogdet", True), ("aten::linalg_vector_norm", False)],
)
def test_factors_of_matrices_are_known(name: str, factorises: bool, tmp_path: Path) -> None:
    run = build_case_run(tmp_path / "run", Plant(tables={"operators": [call(name, "[[9,9]]", 10)]}))
    assert find_kinds(run.rank(0)).factorises == factorises


@pytest.mark.parametrize(
    ("width", "rows", "name", "shapes"),
    [
        (64, 64, "aten::addmm", "[[96],[4096,96],[96,96],[],[]]"),
        (128, 32, "aten::addmm", "[[96],[4096,96],[96,96],[],[]]"),
        (64, 8, "aten::addmm", "[[256],[512,256],[256,256],[],[]]"),
        (128, 8, "aten::native_layer_norm", "[[8,128,64],[],[64],[64],[]]"),
    ],
)
def test_features_that_look_like_a_width_do_not_make_a_square(
    width: int, rows: int, name: str, shapes: str, tmp_path: Path
) -> None:
    run = build_case_run(tmp_path / "run", Plant(tables={"operators": [call(name, shapes, 10)]}))
    assert find_wide_shares(run.rank(0), width, rows) == pytest.approx((1.0, 0.0), abs=0.01)


def test_a_node_that_ran_twice_is_weighed_by_the_time_that_was_for_nothing() -> None:
    node = "autograd::engine::evaluate_function: AddmmBackward0"
    rows = pa.table(
        {
            "name": [node, "aten::mm", node, node, node],
            "sequence": pa.array([7, 7, 7, 8, None], pa.int64()),
            "start_ns": [0, 1, 50, 60, 70],
        }
    )
    assert weigh_nodes(rows, ((7, 7, 0, 2), (8, 9, 0, 1))).tolist() == [1.0, 0.0, 0.0, 0.5, 0.0]
    assert weigh_nodes(rows, ((7, 7, 1, 2),)).tolist() == [0.0, 0.0, 1.0, 0.0, 0.0]
    assert weigh_nodes(rows, ()).tolist() == [0.0] * 5
