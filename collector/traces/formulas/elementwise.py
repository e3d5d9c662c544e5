"""Work per element: arithmetic, activations, copies. Memory sets their speed, so the bytes matter more than the operations.

Counted: the operations per element of the result that OPERATIONS gives; a comparison or a copy is none, a transcendental
function is one. Least bytes: every tensor read once, the result written once. A result is as large as what the tensors
broadcast to, of the first one's dtype; an in-place operator (a name that ends in `_`) writes what it has read.
"""

from __future__ import annotations

import math

from collector.traces.call import Call, Formula, Shape, Work, broadcast

OPERATIONS = (
    (0, 1, "clone logical_not bitwise_not isnan isinf isfinite"),
    (0, 2, "copy_ eq ne lt le gt ge logical_and logical_or masked_fill masked_fill_ bitwise_and bitwise_or"),
    (0, 3, "where"),
    (1, 1, "exp exp_ log log_ sqrt sqrt_ rsqrt rsqrt_ neg neg_ abs reciprocal reciprocal_ square sign floor ceil"),
    (1, 1, "clamp clamp_ clamp_min clamp_min_ clamp_max clamp_max_ round trunc sin cos tan erf log1p expm1"),
    (1, 1, "relu relu_ tanh tanh_ threshold threshold_ leaky_relu leaky_relu_ hardtanh hardtanh_ log2 exp2"),
    (1, 2, "add add_ sub sub_ rsub mul mul_ div div_ pow pow_ maximum minimum fmod remainder floor_divide atan2"),
    (1, 2, "threshold_backward"),
    (2, 1, "elu elu_"),
    (2, 2, "leaky_relu_backward hardtanh_backward"),
    (3, 1, "sigmoid sigmoid_ softplus"),
    (3, 2, "sigmoid_backward tanh_backward native_dropout_backward elu_backward mse_loss"),
    (3, 3, "addcmul addcmul_ addcdiv addcdiv_ lerp lerp_ mse_loss_backward"),
    (4, 1, "silu silu_ hardswish hardswish_ glu"),
    (4, 2, "softplus_backward"),
    (7, 1, "mish"),
    (7, 2, "silu_backward hardswish_backward"),
    (8, 1, "gelu gelu_"),
    (13, 2, "gelu_backward"),
)
"""Operations per element, tensors, and the operators. What comes after the tensors is a setting, or the `out`.

Sigmoid is a negation, an exponential, an addition and a division over one: 3 beside the negation; silu one more; gelu
by erf has 5 around it and 3 for the scale; gradients are those of the textbook form."""


def _per_element(name: str, operations: int, taken: int) -> Formula:
    in_place, is_copy, is_loss = name.endswith("_"), name == "copy_", name == "mse_loss"

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
    **{name: _per_element(name, count, taken) for count, taken, names in OPERATIONS for name in names.split()},
    "cat": _concatenate,
    "stack": _concatenate,
    "native_dropout": _drop_out,
    "zero_": _fill,
    "fill_": _fill,
}
