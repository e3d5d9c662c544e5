"""Work per element of tensors: arithmetic, normalisations, look-ups, optimizers.

Arithmetic, activations, copies: memory limits their speed, so the bytes matter more than the operations. Counted: the
operations per element of the result in OPERATIONS; a comparison or a copy is none, a transcendental function is one.
Least bytes: every tensor read once, the result written once. The result has the tensors' broadcast shape and the first
tensor's dtype; an in-place operator (a name that ends in `_`) writes its input.

Normalisations, softmax and reductions: a few operations per element of the input, less important than memory. Counted
per element: 7 for a normalisation forward (sum for the mean, difference, square, sum for the variance, scale, weight,
bias), 5 without training (no statistics: difference, scale, weight, bias, and one for the root), 10 for its backward
(two sums with their product, and the five of the gradient's textbook form). Softmax: 5 forward (maximum, difference,
exponential, sum, quotient), 4 backward. A reduction: 1, a variance or a norm 2 or 3. Least bytes: the input read once,
a result of its size written once; a reduction's result is ignored, being smaller.

Look-ups in tables: no arithmetic forward, an addition per element backward. Least bytes: the indices, the rows that are
read, and the result; the rest of the table is not touched.

Optimizers over lists of tensors, if the trace has the lists' shapes. Counted per parameter, as PyTorch's fused kernels
compute: Adam 13 (weight decay 2, two moving averages 3 and 4, root, bias corrections 2, quotient, update), SGD with
momentum 6 (weight decay 2, momentum 2, update 2). Least bytes: every list read once; parameters and states written
once. The dtype of a list is unknown: float32 is assumed.
"""

from __future__ import annotations

import math
from functools import partial

from collector.traces.call import Call, Formula, Work, broadcast

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
"""Operations per element, the number of tensors, and the operators. Later arguments are settings or the `out` tensor.

Sigmoid is a negation, an exponential, an addition and a division: 3 without the negation; silu has one more. gelu by
erf has 5 around it and 3 for the scale; gradients use the textbook form.
"""


def _per_element(name: str, operations: int, taken: int) -> Formula:
    in_place, is_copy, is_loss = name.endswith("_"), name == "copy_", name == "mse_loss"

    def estimate(call: Call) -> Work | None:
        places = [place for place, shape in enumerate(call.tensors[:taken]) if shape is not None]
        shapes = [call.tensors[place] or () for place in places]
        result = (shapes[0] if in_place else broadcast(shapes)) if any(shapes) else None
        if result is None:
            return None
        elements = math.prod(result)
        read = sum(call.tensor_bytes(place) for place in (places[1:] if is_copy else places))
        written = 0 if is_loss else elements * call.element_bytes(places[0])
        return Work(float(operations * elements), read + written)

    return estimate


def _drop_out(call: Call) -> Work | None:
    """Return the work of native_dropout: two operations for mask and scale; input read, output and mask written."""
    data = call.shape(0)
    if not data:
        return None
    return Work(2.0 * math.prod(data), 2 * call.tensor_bytes(0) + math.prod(data))


def _per_input(operations: int, reads_all: bool = True, writes: bool = True) -> Formula:
    """Return a formula that counts `operations` per element of the first tensor.

    All tensors are read; without `reads_all`, only the first. With `writes`, a tensor as large as the first is written.
    """

    def estimate(call: Call) -> Work | None:
        data = call.shape(0)
        if not data:
            return None
        read = sum(call.tensor_bytes(place) for place in range(len(call.tensors) if reads_all else 1))
        return Work(float(operations * math.prod(data)), read + writes * call.tensor_bytes(0))

    return estimate


_reduce = partial(_per_input, reads_all=False, writes=False)
_FORWARD = (
    *("native_layer_norm", "layer_norm", "native_group_norm", "group_norm", "native_batch_norm", "batch_norm"),
    *("_native_batch_norm_legit", "_batch_norm_with_update", "cudnn_batch_norm", "miopen_batch_norm", "rms_norm"),
    *("_batch_norm_impl_index", "_fused_rms_norm"),
)
_BACKWARD = (
    *("native_layer_norm_backward", "native_group_norm_backward", "native_batch_norm_backward"),
    *("cudnn_batch_norm_backward", "miopen_batch_norm_backward", "batch_norm_backward", "_fused_rms_norm_backward"),
)


def _look_up(call: Call) -> Work | None:
    """Return the work of aten::embedding with (weight (rows, width), indices)."""
    weight, indices = call.shape(0), call.shape(1)
    if weight is None or indices is None or len(weight) != 2:
        return None
    rows = math.prod(indices) * weight[1] * call.element_bytes(0)
    return Work(0.0, 2 * rows + call.tensor_bytes(1))


def _add_up(call: Call) -> Work | None:
    """Return the work of aten::embedding_dense_backward, called with (grad_output, indices, rows).

    The operator writes the whole gradient of the weights. If the size of this gradient is unknown, the bytes of
    `grad_output` are used instead.
    """
    gradient, rows = call.shape(0), call.integers(2)
    if not gradient:
        return None
    written = rows[0] * gradient[-1] * call.element_bytes(0) if rows else call.tensor_bytes(0)
    return Work(float(math.prod(gradient)), call.tensor_bytes(0) + call.tensor_bytes(1) + written)


_FOREACH = {
    0: "copy zero",
    1: "add sub mul div sqrt neg abs exp reciprocal pow maximum minimum clamp_min",
    2: "norm",
    3: "addcmul addcdiv lerp",
}


def _for_each(operations: int, in_place: bool) -> Formula:
    """Return a formula with `operations` per element; all lists are read, one as large as the first is written."""

    def estimate(call: Call) -> Work | None:
        sizes = [sum(math.prod(shape) for shape in shapes) for shapes in call.lists]
        if not sizes or not sizes[0]:
            return None
        read = sum(size * call.element_bytes(place) for place, size in enumerate(sizes))
        if in_place and operations == 0:
            read -= sizes[0] * call.element_bytes(0)  # what a copy overwrites is not read
        return Work(float(operations * sizes[0]), read + sizes[0] * call.element_bytes(0))

    return estimate


def _per_list(operations: int, moved: int, states: int = 0) -> Formula:
    """Return a formula that counts `operations` per element of the first list of tensors.

    The bytes of the first list are counted `moved` times, once for each time that they are read or written. `states` is
    the number of lists of optimizer states; each is read and written once.
    """

    def estimate(call: Call) -> Work | None:
        size = sum(math.prod(shape) for shape in call.list_of(0))
        held = sum(1 for place in range(2, 2 + states) if call.list_of(place))
        return (
            Work(float(operations * size), float((moved + 2 * held) * size * call.element_bytes(0))) if size else None
        )

    return estimate


FORMULAS: dict[str, Formula] = {
    **{name: _per_element(name, count, taken) for count, taken, names in OPERATIONS for name in names.split()},
    **dict.fromkeys(("cat", "stack"), _per_list(0, 2)),
    "native_dropout": _drop_out,
    # A tensor that is only written counts like one that is only read.
    **dict.fromkeys(("zero_", "fill_"), _reduce(0)),
    **dict.fromkeys(_FORWARD, _per_input(7)),
    "_native_batch_norm_legit_no_training": _per_input(5),
    **dict.fromkeys(_BACKWARD, _per_input(10)),
    **dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax"), _per_input(5, reads_all=False)),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), _per_input(4)),
    **dict.fromkeys(("sum", "mean", "prod", "cumsum", "nansum"), _reduce(1)),
    **dict.fromkeys(("max", "min", "amax", "amin", "argmax", "argmin", "any", "all", "aminmax"), _reduce(0)),
    **dict.fromkeys(("norm", "linalg_vector_norm", "logsumexp"), _reduce(2)),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), _reduce(3)),
    "embedding": _look_up,
    "embedding_dense_backward": _add_up,
    **{
        f"_foreach_{name}{end}": _for_each(count, bool(end))
        for count, names in _FOREACH.items()
        for name in names.split()
        for end in ("", "_")
    },
    # The norms are too small to matter.
    "_foreach_norm": _per_list(2, 1),
    # Parameters are read and written, gradients only read.
    **dict.fromkeys(("_fused_adam_", "_fused_adamw_"), _per_list(13, 3, 3)),
    "_fused_sgd_": _per_list(6, 3, 1),
}
