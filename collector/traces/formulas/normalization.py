"""Normalisations, softmax and reductions: a few operations per element of the input, which memory outweighs.

Counted per element: 7 for a normalisation forward (sum for the mean, difference, square, sum for the variance, scale,
weight, bias), 5 where nothing is trained (no statistics: difference, scale, weight, bias, and one for the root), 10 for
its backward (two sums with their product, and the five of the gradient's textbook form). Softmax: 5 forward (maximum,
difference, exponential, sum, quotient), 4 backward. A reduction: 1, a variance or a norm 2 or 3. Least bytes: the input
read once, a result of its size written once; a reduction's result is ignored, being smaller.
"""

from __future__ import annotations

import math
from functools import partial

from collector.traces.call import Call, Formula, Work


def _per_element(operations: int, reads_all: bool = True, writes: bool = True) -> Formula:
    """Read the first tensor, or all of them, such as a gradient with an input and small ones; write one of its size."""

    def estimate(call: Call) -> Work | None:
        data = call.shape(0)
        if not data:
            return None
        read = sum(call.tensor_bytes(place) for place in range(len(call.tensors) if reads_all else 1))
        return Work(float(operations * math.prod(data)), read + writes * call.tensor_bytes(0))

    return estimate


_reduce = partial(_per_element, reads_all=False, writes=False)
_FORWARD = (
    *("native_layer_norm", "layer_norm", "native_group_norm", "group_norm", "native_batch_norm", "batch_norm"),
    *("_native_batch_norm_legit", "_batch_norm_with_update", "cudnn_batch_norm", "miopen_batch_norm", "rms_norm"),
    *("_batch_norm_impl_index", "_fused_rms_norm"),
)
_BACKWARD = (
    *("native_layer_norm_backward", "native_group_norm_backward", "native_batch_norm_backward"),
    *("cudnn_batch_norm_backward", "miopen_batch_norm_backward", "batch_norm_backward", "_fused_rms_norm_backward"),
)
FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(_FORWARD, _per_element(7)),
    "_native_batch_norm_legit_no_training": _per_element(5),
    **dict.fromkeys(_BACKWARD, _per_element(10)),
    **dict.fromkeys(("softmax", "_softmax", "log_softmax", "_log_softmax"), _per_element(5, reads_all=False)),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), _per_element(4)),
    **dict.fromkeys(("sum", "mean", "prod", "cumsum", "nansum"), _reduce(1)),
    **dict.fromkeys(("max", "min", "amax", "amin", "argmax", "argmin", "any", "all", "aminmax"), _reduce(0)),
    **dict.fromkeys(("norm", "linalg_vector_norm", "logsumexp"), _reduce(2)),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), _reduce(3)),
}
