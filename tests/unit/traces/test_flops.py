"""Work of operators: operations and least bytes, each counted by hand from small shapes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from collector.traces.call import estimate_work
from collector.traces.importing import import_trace
from tests.support.traces import operator, step, write_trace

FLOAT, HALF, SCALAR, LIST = "float", "c10::Half", "Scalar", "TensorList"
QUERY = [2, 8, 10, 64]
SMALL = 128 * 128 + 128


def estimate(
    name: str, shapes: list[Any], dtypes: list[str] | None = None, values: dict[int, str] | None = None
) -> Any:
    """Return operations and bytes of a call of float tensors; `values` are the arguments that the trace spells, by place."""
    spelled = [(values or {}).get(place, "") for place in range(16)]
    given = [FLOAT] * len(shapes) if dtypes is None else dtypes
    work = estimate_work(f"aten::{name}", json.dumps(shapes), json.dumps(given), json.dumps(spelled))
    return None if work is None else (work.flops, work.moved_bytes)


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes", "expected"),
    [
        # (2, 3) x (3, 4): 2·2·3·4 operations; 6 + 12 + 8 numbers of 4 bytes.
        ("mm", [[2, 3], [3, 4]], None, (48, 104)),
        ("addmm", [[4], [2, 3], [3, 4], [], []], [HALF, HALF, HALF, SCALAR, SCALAR], (48, 2 * (4 + 6 + 12 + 8))),
        ("_addmm_activation", [[4], [2, 3], [3, 4]], None, (48, 4 * (4 + 6 + 12 + 8))),
        ("linear", [[5, 2, 3], [4, 3], [4]], None, (2 * 10 * 3 * 4, 4 * (30 + 12 + 4 + 40))),
        ("bmm", [[7, 2, 3], [7, 3, 4]], None, (7 * 48, 4 * 7 * 26)),
        ("baddbmm", [[7, 2, 4], [7, 2, 3], [7, 3, 4]], None, (7 * 48, 4 * 7 * 34)),
        ("matmul", [[7, 1, 2, 3], [5, 3, 4]], None, (35 * 48, 4 * (42 + 60 + 280))),
        ("matmul", [[2, 3], [3]], None, (12, 4 * 11)),
        ("matmul", [[3], [3, 4]], None, (24, 4 * 19)),
        ("mv", [[2, 3], [3]], None, (12, 4 * 11)),
        ("dot", [[3], [3]], None, (6, 4 * 7)),
        # An element of the result takes as many operations as the formula has; every tensor is read, the result written.
        ("relu", [[5, 2]], None, (10, 80)),
        ("leaky_relu_backward", [[5, 2]] * 2, None, (20, 120)),
        ("sigmoid", [[5, 2]], None, (30, 80)),
        ("addcmul", [[5, 2]] * 3, None, (30, 160)),
        ("silu", [[5, 2]], None, (40, 80)),
        ("silu_backward", [[5, 2]] * 2, None, (70, 120)),
        ("gelu", [[5, 2]], None, (80, 80)),
        ("gelu_backward", [[5, 2]] * 2, None, (130, 120)),
        ("add", [[4, 1], [3], []], [FLOAT, FLOAT, SCALAR], (12, 4 * (4 + 3 + 12))),
        ("mul_", [[4, 3], []], [HALF, "double"], (12, 2 * 24 + 8)),
        ("copy_", [[4, 3], [4, 3], []], [HALF, FLOAT, SCALAR], (0, 12 * (4 + 2))),
        ("clamp_min", [[4, 3], [], [4, 3]], [FLOAT, SCALAR, FLOAT], (12, 2 * 48)),  # the last is its `out`
        ("add", [[4, 3], [4, 3], [], [4, 3]], [FLOAT, FLOAT, SCALAR, FLOAT], (12, 3 * 48)),
        ("zero_", [[5, 2]], None, (0, 40)),
        ("cat", [[[2, 3], [4, 3]], []], [LIST, SCALAR], (0, 2 * 18 * 4)),
        ("native_dropout", [[5, 2]], None, (20, 2 * 40 + 10)),
        # Normalisations, reductions and softmax are per element of the input.
        ("native_layer_norm", [[6, 4], [], [4], [4], []], [FLOAT, "ScalarList", FLOAT, FLOAT, SCALAR], (168, 4 * 56)),
        ("native_layer_norm_backward", [[6, 4], [6, 4]], None, (240, 4 * 72)),
        ("_softmax", [[6, 4], [], []], [FLOAT, SCALAR, SCALAR], (120, 192)),
        ("sum", [[6, 4], []], [FLOAT, ""], (24, 96)),
        ("amax", [[5, 2]], None, (0, 40)),
        ("norm", [[5, 2]], None, (20, 40)),
        ("var", [[5, 2]], None, (30, 40)),
        ("embedding", [[50000, 8], [2, 3], []], [HALF, "long int", SCALAR], (0, 2 * 6 * 8 * 2 + 48)),
        ("embedding_dense_backward", [[3, 8], [3]], None, (24, 96 + 12 + 96)),
        ("_foreach_add_", [[[128, 128], [128]]] * 2 + [[]], [LIST, LIST, SCALAR], (SMALL, 3 * 4 * SMALL)),
        ("_fused_adamw_", [[[128, 128], [128]]] * 4, [LIST] * 4, (13 * SMALL, 7 * 4 * SMALL)),
        # Attention: two products forward, five backward.
        ("_scaled_dot_product_flash_attention", [QUERY] * 3, [HALF] * 3, (4 * 16 * 6400, 2 * 4 * 16 * 640)),
        ("_scaled_dot_product_flash_attention_backward", [QUERY] * 6, [HALF] * 6, (10 * 16 * 6400, 2 * 8 * 16 * 640)),
        ("_flash_attention_forward", [[2, 10, 8, 64]] * 3, [HALF] * 3, (4 * 16 * 6400, 2 * 4 * 16 * 640)),
    ],
)
def test_work_is_as_counted_by_hand(
    name: str, shapes: list[Any], dtypes: list[str] | None, expected: tuple[int, int]
) -> None:
    assert estimate(name, shapes, dtypes) == expected


@pytest.mark.parametrize(
    ("name", "shapes", "dtypes"),
    [
        ("aten::mm", "[[2,3],[4,5]]", '["float","float"]'),
        ("aten::mm", "[[2,3]]", '["float"]'),
        ("aten::mm", "not json", None),
        ("aten::mm", None, None),
        ("aten::view", "[[2,3]]", '["float"]'),
        ("mm", "[[2,3],[3,4]]", '["float","float"]'),
        ("aten::embedding", "[[100,8]]", '["float"]'),
        ("aten::embedding", "[[100],[3]]", '["float","long int"]'),
    ],
)
def test_shapes_that_do_not_fit_tell_nothing(name: str, shapes: str | None, dtypes: str | None) -> None:
    assert estimate_work(name, shapes, dtypes) is None


def test_einsum_multiplies_all_its_indices() -> None:
    assert estimate("einsum", [[], [[2, 3], [3, 4]]], values={0: "ij,jk->ik"}) == (48, 4 * (6 + 12 + 8))
    assert estimate("einsum", [[], [[7, 2, 3], [7, 3, 4]]], values={0: "bij,bjk->bik"})[0] == 7 * 48


@pytest.mark.parametrize("equation", ["ij,jk", "ij,jk,kl->il", "i...,...k->ik", "ii,ik->ik", "i,jk->ik", "ij,jk->iz"])
def test_an_equation_of_another_kind_tells_nothing(equation: str) -> None:
    assert estimate("einsum", [[], [[2, 3], [3, 4]]], values={0: equation}) is None


@pytest.mark.parametrize(
    ("name", "stride", "padding", "dilation"),
    [
        ("conv2d", 3, 4, 5),
        ("convolution", 3, 4, 5),
        ("cudnn_convolution", 3, 2, 4),
        ("cudnn_convolution_relu", 3, 4, 5),
        ("mkldnn_convolution", 4, 3, 5),
        ("_conv_depthwise2d", 4, 5, 6),
        ("thnn_conv2d", 4, 5, 9),
    ],
)
def test_a_convolution_counts_its_taps_over_the_output(name: str, stride: int, padding: int, dilation: int) -> None:
    values = {stride: "[2, 2]", padding: "[1, 1]", dilation: "[1, 1]"}
    # 7 + 2·1 - 3 = 6, half of it and 1: 4 by 4 results for each of 6 channels, each over 5 · 3 · 3 taps.
    expected = (2 * (2 * 6 * 16) * (5 * 9), 4 * (2 * 5 * 49 + 6 * 45 + 2 * 6 * 16))
    assert estimate(name, [[2, 5, 7, 7], [6, 5, 3, 3]], values=values) == expected
    assert estimate(name, [[2, 5, 7, 7], [6, 5, 3, 3]]) is None


@pytest.mark.parametrize(
    ("data", "weight", "written"),
    [
        ([1, 4, 5, 5], [4, 2, 3, 3], 2 * 10 * 10),  # (5 - 1)·2 - 2 + 2 + 1 + 1 = 10
        ([2, 5, 7], [5, 6, 3], 2 * 6 * 14),
    ],
)
def test_a_transposed_convolution_counts_its_taps_over_the_input(
    data: list[int], weight: list[int], written: int
) -> None:
    values = {3: "[2]", 4: "[1]", 5: "[1]", 6: "True", 7: "[1]", 8: "1"}
    elements, taps = math.prod(data), math.prod(weight)
    expected = (2 * elements * taps // weight[0], 4 * (elements + taps + written))
    assert estimate("convolution", [data, weight], values=values) == expected


@pytest.mark.parametrize(("mask", "products"), [("[True, True, True]", 2), ("[False, True, False]", 1), ("", 2)])
def test_a_backward_costs_a_forward_per_gradient(mask: str, products: int) -> None:
    shapes = [[8, 16, 16, 16], [8, 3, 32, 32], [16, 3, 3, 3]]
    assert estimate("convolution_backward", shapes, values={7: "False", 10: mask})[0] == (
        products * 2 * 8 * 16 * 256 * 27
    )


def test_the_gradient_of_an_embedding_is_written_whole() -> None:
    assert estimate("embedding_dense_backward", [[3, 8], [3]], values={2: "100"}) == (24, 96 + 12 + 100 * 8 * 4)


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
        # Five products for two.
        ("_scaled_dot_product_flash_attention_backward", 11, 3000),
        ("_scaled_dot_product_flash_attention_for_cpu_backward", 7, 3000),
        ("_scaled_dot_product_efficient_attention_backward", 11, 3000),
        ("_scaled_dot_product_cudnn_attention_backward", 14, 3000),
        ("_flash_attention_backward", 11, 2400),
    ],
)
def test_a_causal_attention_takes_the_scores_below_the_diagonal(name: str, causal: int, flops: int) -> None:
    factor = 2 if "backward" in name else 1
    expected = (flops, factor * 4 * 4 * 120)
    assert estimate(name, [[2, 3, 4, 5]] * (3 + factor - 1), values={causal: "True"}) == expected


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
    found = {row["name"]: row["flops"] for row in rank.table("operators", ["name", "flops"]).to_pylist()}
    assert found == {"aten::linear": 0.0, "aten::addmm": 128.0, "aten::relu": 16.0, "aten::view": None}
