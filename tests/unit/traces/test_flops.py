"""Work of operators, each computed by hand from small shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collector.format.words import find_element_bytes
from collector.traces import import_trace
from collector.traces.call import broadcast, estimate_work
from tests.support.traces import operator, step, write_trace

FLOAT, HALF, SCALAR = "float", "c10::Half", "Scalar"


def _estimate(name: str, shapes: list[Any], dtypes: list[str], values: list[str] | None = None) -> tuple[float, float]:
    work = estimate_work(f"aten::{name}", json.dumps(shapes), json.dumps(dtypes), json.dumps(values or []))
    assert work is not None
    return work.flops, work.moved_bytes


def test_a_product_counts_a_multiplication_and_an_addition_per_inner_element() -> None:
    # (2, 3) x (3, 4): 2·2·3·4 operations; 6 + 12 + 8 numbers of 4 bytes.
    assert _estimate("mm", [[2, 3], [3, 4]], [FLOAT, FLOAT]) == (48, 104)


def test_addmm_reads_its_bias_too() -> None:
    flops, moved = _estimate("addmm", [[4], [2, 3], [3, 4], [], []], [HALF, HALF, HALF, SCALAR, SCALAR])
    assert (flops, moved) == (48, 2 * (4 + 6 + 12 + 8))


def test_linear_flattens_its_leading_dimensions() -> None:
    assert _estimate("linear", [[5, 2, 3], [4, 3], [4]], [FLOAT] * 3) == (2 * 10 * 3 * 4, 4 * (30 + 12 + 4 + 40))


@pytest.mark.parametrize(
    ("name", "shapes", "flops"),
    [
        ("bmm", [[7, 2, 3], [7, 3, 4]], 7 * 48),
        ("baddbmm", [[7, 2, 4], [7, 2, 3], [7, 3, 4]], 7 * 48),
        ("matmul", [[7, 1, 2, 3], [5, 3, 4]], 35 * 48),
        ("matmul", [[2, 3], [3]], 12),
        ("matmul", [[3], [3, 4]], 24),
        ("mv", [[2, 3], [3]], 12),
        ("dot", [[3], [3]], 6),
    ],
)
def test_products_of_any_rank(name: str, shapes: list[Any], flops: int) -> None:
    assert _estimate(name, shapes, [FLOAT] * len(shapes))[0] == flops


def test_shapes_that_do_not_fit_tell_nothing() -> None:
    assert estimate_work("aten::mm", "[[2,3],[4,5]]", '["float","float"]') is None
    assert estimate_work("aten::mm", "[[2,3]]", '["float"]') is None
    assert estimate_work("aten::mm", "not json", None) is None
    assert estimate_work("aten::mm", None, None) is None
    assert estimate_work("aten::view", "[[2,3]]", '["float"]') is None
    assert estimate_work("mm", "[[2,3],[3,4]]", '["float","float"]') is None


def test_einsum_multiplies_all_its_indices() -> None:
    shapes, dtypes = [[], [[7, 2, 3], [7, 3, 4]], []], ["", "TensorList", ""]
    assert _estimate("einsum", shapes, dtypes, ["bij,bjk->bik", "", ""])[0] == 2 * 7 * 2 * 3 * 4
    assert estimate_work("aten::einsum", json.dumps(shapes), json.dumps(dtypes), '["b...j,bjk->bik",""]') is None


CONV = [[8, 3, 32, 32], [16, 3, 3, 3], [16], [], [], [], [], [], []]
CONV_TYPES = [FLOAT, FLOAT, FLOAT, *["ScalarList"] * 3, SCALAR, "ScalarList", SCALAR]


def test_a_convolution_counts_its_taps_over_the_output() -> None:
    values = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    outputs = 8 * 16 * 16 * 16  # (32 + 2 - 3) // 2 + 1 = 16
    flops, moved = _estimate("convolution", CONV, CONV_TYPES, values)
    assert flops == 2 * outputs * 3 * 9
    assert moved == 4 * (8 * 3 * 32 * 32 + 16 * 27 + 16 + outputs)


def test_groups_show_in_the_weight() -> None:
    shapes = [[1, 16, 8, 8], [16, 1, 3, 3], []]
    values = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "16"]
    assert _estimate("conv2d", shapes, [FLOAT, FLOAT, ""], values)[0] == 2 * 16 * 64 * 9


def test_a_transposed_convolution_counts_its_taps_over_the_input() -> None:
    shapes = [[1, 4, 5, 5], [4, 2, 3, 3], [], [], [], [], [], [], []]
    values = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "True", "[1, 1]", "1"]
    flops, moved = _estimate("convolution", shapes, [FLOAT, FLOAT, *[""] * 7], values)
    assert flops == 2 * 100 * 2 * 9
    assert moved == 4 * (100 + 72 + 2 * 10 * 10)  # (5 - 1)·2 - 2 + 2 + 1 + 1 = 10


def test_arguments_stand_elsewhere_in_a_librarys_own_convolution() -> None:
    shapes = [[4, 3, 224, 224], [768, 3, 16, 16], [768]]
    values = ["", "", "", "[0, 0]", "[16, 16]", "[1, 1]", "1"]
    assert _estimate("miopen_convolution", shapes, [FLOAT] * 3, values)[0] == 2 * 4 * 768 * 14 * 14 * 3 * 256


def test_a_convolution_without_its_stride_is_unknown() -> None:
    assert estimate_work("aten::convolution", json.dumps(CONV), json.dumps(CONV_TYPES)) is None


@pytest.mark.parametrize(("mask", "products"), [("[True, True, True]", 2), ("[False, True, False]", 1), ("", 2)])
def test_a_backward_costs_a_forward_per_gradient(mask: str, products: int) -> None:
    shapes = [[8, 16, 16, 16], [8, 3, 32, 32], [16, 3, 3, 3]]
    values = ["", "", "", "[16]", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", mask]
    assert _estimate("convolution_backward", shapes, [FLOAT] * 3, values)[0] == products * 2 * 8 * 16 * 256 * 27


QUERY = [2, 8, 10, 64]


def test_attention_is_two_products_forward_and_five_backward() -> None:
    flops, moved = _estimate("_scaled_dot_product_flash_attention", [QUERY] * 3, [HALF] * 3)
    assert (flops, moved) == (4 * 2 * 8 * 100 * 64, 2 * 4 * 2 * 8 * 10 * 64)
    backward, _ = _estimate("_scaled_dot_product_flash_attention_backward", [QUERY] * 6, [HALF] * 6)
    assert backward == 2.5 * flops


def test_attention_knows_the_other_order_of_dimensions() -> None:
    shape = [2, 10, 8, 64]
    assert _estimate("_flash_attention_forward", [shape] * 3, [HALF] * 3)[0] == 4 * 2 * 8 * 100 * 64


def test_a_causal_mask_leaves_a_little_more_than_half() -> None:
    values = ["", "", "", "0.", "True"]
    flops = _estimate("_scaled_dot_product_flash_attention", [QUERY] * 3, [HALF] * 3, values)[0]
    assert flops == pytest.approx(4 * 2 * 8 * 64 * (10 * 11 / 2))


def test_elementwise_work_is_per_element_of_what_is_broadcast_to() -> None:
    assert _estimate("add", [[4, 1], [3], []], [FLOAT, FLOAT, SCALAR]) == (12, 4 * (4 + 3 + 12))
    assert _estimate("mul_", [[4, 3], []], [HALF, "double"]) == (12, 2 * 24 + 8)
    assert _estimate("copy_", [[4, 3], [4, 3], []], [HALF, FLOAT, SCALAR]) == (0, 12 * (4 + 2))
    assert _estimate("clamp_min", [[4, 3], [], [4, 3]], [FLOAT, SCALAR, FLOAT]) == (12, 2 * 48)  # the last is its `out`
    assert _estimate("add", [[4, 3], [4, 3], [], [4, 3]], [FLOAT, FLOAT, SCALAR, FLOAT]) == (12, 3 * 48)
    assert _estimate("cat", [[[2, 3], [4, 3]], []], ["TensorList", SCALAR]) == (0, 2 * 18 * 4)


def test_normalisations_reductions_and_softmax_are_per_element_of_the_input() -> None:
    assert _estimate("native_layer_norm", [[6, 4], [], [4], [4], []], [FLOAT, "ScalarList", FLOAT, FLOAT, SCALAR]) == (
        7 * 24,
        4 * (48 + 8),
    )
    assert _estimate("native_layer_norm_backward", [[6, 4], [6, 4]], [FLOAT, FLOAT]) == (240, 4 * 72)
    assert _estimate("_softmax", [[6, 4], [], []], [FLOAT, SCALAR, SCALAR]) == (120, 192)
    assert _estimate("sum", [[6, 4], []], [FLOAT, ""]) == (24, 96)


def test_an_embedding_moves_only_the_rows_it_reads() -> None:
    assert _estimate("embedding", [[50000, 8], [2, 3], []], [HALF, "long int", SCALAR]) == (0, 2 * 6 * 8 * 2 + 48)


def test_lists_of_an_optimizer_are_summed() -> None:
    lists = [[[128, 128], [128]], [[128, 128], [128]], []]
    size = 128 * 128 + 128
    assert _estimate("_foreach_add_", lists, ["TensorList", "TensorList", SCALAR]) == (size, 3 * 4 * size)
    assert _estimate("_fused_adamw_", [lists[0]] * 4, ["TensorList"] * 4) == (13 * size, 7 * 4 * size)


def test_dtypes_have_the_sizes_of_their_elements() -> None:
    names = (
        "float",
        "double",
        "c10::BFloat16",
        "c10::Half",
        "long int",
        "int",
        "bool",
        "c10::Float8_e4m3fn",
        "c10::complex<float>",
    )
    assert [find_element_bytes(name) for name in names] == [4, 8, 2, 2, 8, 4, 1, 1, 8]


def test_shapes_broadcast_as_in_torch() -> None:
    assert broadcast([(5, 1, 3), (4, 1)]) == (5, 4, 3)
    assert broadcast([(2,), (3,)]) is None
    assert broadcast([]) == ()


def test_work_is_counted_once_where_operators_call_each_other(tmp_path: Path) -> None:
    shapes = {"Input Dims": [[8, 4], [2, 4], [2]], "Input type": [FLOAT] * 3}
    inner = {"Input Dims": [[2], [8, 4], [4, 2], [], []], "Input type": [FLOAT, FLOAT, FLOAT, SCALAR, SCALAR]}
    events = [
        step(1, 0, 100),
        operator("aten::linear", 10, 50, **shapes),
        operator("aten::addmm", 20, 30, **inner),
        operator("aten::relu", 70, 10, **{"Input Dims": [[8, 2]], "Input type": [FLOAT]}),
        operator("aten::view", 85, 5, **{"Input Dims": [[8, 2]], "Input type": [FLOAT]}),
    ]
    rank = import_trace(write_trace(tmp_path / "trace.json", events), tmp_path / "run").rank()
    table = rank.table("operators", columns=["name", "flops"]).to_pylist()
    assert {row["name"]: row["flops"] for row in table} == {
        "aten::linear": 0.0,
        "aten::addmm": 128.0,
        "aten::relu": 16.0,
        "aten::view": None,
    }
