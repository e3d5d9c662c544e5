"""Work per element: arithmetic, activations, copies. Memory sets their speed, so the bytes matter more than the operations.

Counted: the operations per element of the result that OPERATIONS gives; a comparison or a copy is none, a transcendental
function is one. Least bytes: every tensor read once, the result written once. A result is as large as what the tensors
broadcast to, of the first one's dtype; an in-place operator (a name that ends in `_`) writes what it has read.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from collector.traces.call import Call, Formula, Shape, Work, broadcast

OPERATIONS: dict[int, tuple[str, ...]] = {
    0: (
        *("copy_", "clone", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_not", "where"),
        *("masked_fill", "masked_fill_", "bitwise_and", "bitwise_or", "bitwise_not", "isnan", "isinf", "isfinite"),
    ),
    1: (
        *(
            "add",
            "add_",
            "sub",
            "sub_",
            "rsub",
            "mul",
            "mul_",
            "div",
            "div_",
            "pow",
            "pow_",
            "exp",
            "exp_",
            "log",
            "log_",
        ),
        *("sqrt", "sqrt_", "rsqrt", "rsqrt_", "neg", "neg_", "abs", "reciprocal", "reciprocal_", "square", "sign"),
        *(
            "clamp",
            "clamp_",
            "clamp_min",
            "clamp_min_",
            "clamp_max",
            "clamp_max_",
            "maximum",
            "minimum",
            "floor",
            "ceil",
        ),
        *("round", "trunc", "sin", "cos", "tan", "erf", "log1p", "expm1", "relu", "relu_", "tanh", "tanh_", "fmod"),
        *("remainder", "threshold", "threshold_", "threshold_backward", "leaky_relu", "leaky_relu_", "hardtanh"),
        *("hardtanh_", "floor_divide", "atan2", "log2", "exp2"),
    ),
    2: ("leaky_relu_backward", "hardtanh_backward", "elu", "elu_"),
    3: (
        *("addcmul", "addcmul_", "addcdiv", "addcdiv_", "lerp", "lerp_", "sigmoid", "sigmoid_", "sigmoid_backward"),
        *("tanh_backward", "native_dropout_backward", "softplus", "elu_backward", "mse_loss", "mse_loss_backward"),
    ),
    4: ("silu", "silu_", "hardswish", "hardswish_", "glu", "softplus_backward"),
    7: ("silu_backward", "hardswish_backward", "mish"),
    8: ("gelu", "gelu_"),
    13: ("gelu_backward",),
}
"""Sigmoid is a negation, an exponential, an addition and a division over one: 3 beside the negation; silu one more; gelu
by erf has 5 around it and 3 for the scale; gradients are those of the textbook form."""


_ONE_TENSOR = frozenset(
    (
        *(
            "exp",
            "log",
            "sqrt",
            "rsqrt",
            "neg",
            "abs",
            "reciprocal",
            "square",
            "sign",
            "clamp",
            "clamp_min",
            "clamp_max",
        ),
        *("floor", "ceil", "round", "trunc", "sin", "cos", "tan", "erf", "log1p", "expm1", "relu", "tanh", "threshold"),
        *("leaky_relu", "hardtanh", "log2", "exp2", "elu", "sigmoid", "softplus", "silu", "hardswish", "glu", "mish"),
        *("gelu", "clone", "logical_not", "bitwise_not", "isnan", "isinf", "isfinite"),
    )
)
_THREE_TENSORS = frozenset(("where", "addcmul", "addcdiv", "lerp", "mse_loss_backward"))
"""All others take two. What comes after them is a setting, or the `out` that a result is written to."""


def _count_tensors(name: str) -> int:
    plain = name.removesuffix("_")
    return 1 if plain in _ONE_TENSOR else 3 if plain in _THREE_TENSORS else 2


def _per_element(name: str, operations: int) -> Callable[[Call], Work | None]:
    in_place, is_copy, is_loss = name.endswith("_"), name == "copy_", name == "mse_loss"
    taken = _count_tensors(name)

    def estimate(call: Call) -> Work | None:
        places = [place for place, shape in enumerate(call.tensors[:taken]) if shape is not None]
        shapes = [call.tensors[place] or () for place in places]
        result = _find_result(shapes, in_place)
        if result is None or not any(shapes):
            return None
        elements = math.prod(result)
        read = sum(call.tensor_bytes(place) for place in (places[1:] if is_copy else places))
        written = 0 if is_loss else elements * call.element_bytes(places[0])
        return Work(float(operations * elements), read + written)

    return estimate


def _find_result(shapes: list[Shape], in_place: bool) -> Shape | None:
    if not shapes:
        return None
    return shapes[0] if in_place else broadcast(shapes)


def _concatenate(call: Call) -> Work | None:
    """Return aten::cat and stack: every tensor read once and written once."""
    elements = sum(math.prod(shape) for shape in call.list_of(0))
    return Work(0.0, 2.0 * elements * call.element_bytes(0)) if elements else None


def _drop_out(call: Call) -> Work | None:
    """Return native_dropout: a comparison is none, the mask and the scale are two; input read, output and mask written."""
    data = call.shape(0)
    if not data:
        return None
    return Work(2.0 * math.prod(data), 2 * call.tensor_bytes(0) + math.prod(data))


def _fill(call: Call) -> Work | None:
    """Return zero_ and fill_: the tensor written once."""
    return Work(0.0, call.tensor_bytes(0)) if call.shape(0) else None


FORMULAS: dict[str, Formula] = {
    **{name: _per_element(name, count) for count, names in OPERATIONS.items() for name in names},
    "cat": _concatenate,
    "stack": _concatenate,
    "native_dropout": _drop_out,
    "zero_": _fill,
    "fill_": _fill,
}
