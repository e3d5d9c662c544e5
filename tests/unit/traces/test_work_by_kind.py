"""Operations per element and places of arguments, kind by kind, with numbers that can be counted by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.traces.call import estimate_work


def estimate(
    name: str, shapes: list[Any], values: list[str] | None = None, dtype: str = "float"
) -> tuple[float, float]:
    work = estimate_work(f"aten::{name}", json.dumps(shapes), json.dumps([dtype] * len(shapes)), json.dumps(values))
    assert work is not None
    return work.flops, work.moved_bytes


@pytest.mark.parametrize(
    ("name", "tensors", "per_element"),
    [
        ("relu", 1, 1),
        ("add", 2, 1),
        ("leaky_relu_backward", 2, 2),
        ("sigmoid", 1, 3),
        ("addcmul", 3, 3),
        ("silu", 1, 4),
        ("silu_backward", 2, 7),
        ("gelu", 1, 8),
        ("gelu_backward", 2, 13),
    ],
)
def test_each_element_takes_as_many_operations_as_its_formula_has(name: str, tensors: int, per_element: int) -> None:
    assert estimate(name, [[5, 2]] * tensors) == (10 * per_element, 4 * 10 * (tensors + 1))


@pytest.mark.parametrize(("name", "per_element"), [("sum", 1), ("amax", 0), ("norm", 2), ("var", 3)])
def test_a_reduction_takes_its_operations_for_each_element_that_it_reads(name: str, per_element: int) -> None:
    assert estimate(name, [[5, 2]])[0] == 10 * per_element


def test_what_only_moves_or_fills_has_no_operations() -> None:
    assert estimate("zero_", [[5, 2]]) == (0, 40)
    assert estimate("cat", [[[5, 2], [3, 2]]]) == (0, 2 * 16 * 4)
    assert estimate("native_dropout", [[5, 2]]) == (20, 2 * 40 + 10)


def test_a_row_of_an_embedding_is_read_and_written() -> None:
    weight, indices = [100, 8], [3]
    assert estimate("embedding", [weight, indices]) == (0, 2 * 3 * 8 * 4 + 3 * 4)
    assert estimate_work("aten::embedding", json.dumps([weight]), '["float"]') is None
    assert estimate_work("aten::embedding", json.dumps([[100], indices]), '["float", "long int"]') is None


def test_the_gradient_of_an_embedding_is_written_whole() -> None:
    gradient, indices = [3, 8], [3]
    assert estimate("embedding_dense_backward", [gradient, indices], ["", "", "100"]) == (24, 96 + 12 + 100 * 8 * 4)
    assert estimate("embedding_dense_backward", [gradient, indices]) == (24, 96 + 12 + 96)


def test_an_equation_is_read_with_both_operands_and_written_with_its_result() -> None:
    flops, moved = estimate("einsum", [[], [[2, 3], [3, 4]]], ["ij,jk->ik"])
    assert (flops, moved) == (2 * 2 * 3 * 4, 4 * (6 + 12 + 8))


@pytest.mark.parametrize("equation", ["ij,jk", "ij,jk,kl->il", "i...,...k->ik", "ii,ik->ik", "i,jk->ik", "ij,jk->iz"])
def test_an_equation_of_another_kind_tells_nothing(equation: str) -> None:
    shapes, values = json.dumps([[], [[2, 3], [3, 4]]]), json.dumps([equation])
    assert estimate_work("aten::einsum", shapes, '["", "float"]', values) is None


@pytest.mark.parametrize(
    ("name", "stride", "padding", "dilation"),
    [
        ("conv2d", 3, 4, 5),
        ("cudnn_convolution", 3, 2, 4),
        ("cudnn_convolution_relu", 3, 4, 5),
        ("mkldnn_convolution", 4, 3, 5),
        ("_conv_depthwise2d", 4, 5, 6),
        ("thnn_conv2d", 4, 5, 9),
    ],
)
def test_a_convolution_reads_its_stride_and_padding_from_its_own_places(
    name: str, stride: int, padding: int, dilation: int
) -> None:
    values = [""] * 10
    values[stride], values[padding], values[dilation] = "[2, 2]", "[1, 1]", "[1, 1]"
    # 7 + 2·1 - 3 = 6, half of it and 1: 4 by 4 results for each of 6 channels, each over 5 · 3 · 3 taps.
    assert estimate(name, [[2, 5, 7, 7], [6, 5, 3, 3]], values)[0] == 2 * (2 * 6 * 16) * (5 * 9)


@pytest.mark.parametrize(
    ("name", "causal", "flops"),
    [
        # 2 · 3 heads of 4 by 4 scores over 5 + 5 numbers, of which (4 + 1) / 8 are left below the diagonal.
        ("scaled_dot_product_attention", 5, 1200),
        ("_scaled_dot_product_flash_attention", 4, 1200),
        ("_scaled_dot_product_flash_attention_for_cpu", 4, 1200),
        ("_scaled_dot_product_efficient_attention", 6, 1200),
        ("_scaled_dot_product_cudnn_attention", 6, 1200),
        # Length before heads: 2 · 4 heads of 3 by 3 scores, of which 4 / 6 are left.
        ("_flash_attention_forward", 8, 960),
    ],
)
def test_a_causal_attention_takes_the_scores_below_the_diagonal(name: str, causal: int, flops: int) -> None:
    values = [""] * 10
    values[causal] = "True"
    assert estimate(name, [[2, 3, 4, 5]] * 3, values) == (flops, 4 * 4 * 120)


@pytest.mark.parametrize(
    ("name", "causal", "flops"),
    [
        ("_scaled_dot_product_flash_attention_backward", 11, 3000),
        ("_scaled_dot_product_flash_attention_for_cpu_backward", 7, 3000),
        ("_scaled_dot_product_efficient_attention_backward", 11, 3000),
        ("_scaled_dot_product_cudnn_attention_backward", 14, 3000),
        ("_flash_attention_backward", 11, 2400),
    ],
)
def test_the_gradient_of_attention_takes_five_products_for_two(name: str, causal: int, flops: int) -> None:
    values = [""] * 16
    values[causal] = "True"
    assert estimate(name, [[2, 3, 4, 5]] * 4, values) == (flops, 2 * 4 * 4 * 120)


def test_an_activation_does_not_change_the_product_before_it() -> None:
    assert estimate("_addmm_activation", [[4], [2, 3], [3, 4]]) == (48, 4 * (4 + 6 + 12 + 8))


def test_a_transposed_convolution_writes_more_than_it_reads() -> None:
    values = ["", "", "", "[2]", "[1]", "[1]", "True", "[0]", "1"]
    # (7 - 1) · 2 - 2 · 1 + (3 - 1) + 1 = 13 results for each of 6 channels; each of 70 numbers meets 6 · 3 taps.
    assert estimate("convolution", [[2, 5, 7], [5, 6, 3]], values) == (2 * 70 * 18, 4 * (70 + 90 + 2 * 6 * 13))
