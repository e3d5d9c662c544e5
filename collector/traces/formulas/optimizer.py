"""Optimizers over lists of tensors, where the trace has the shapes of the lists.

Counted per parameter, in the form that PyTorch's fused kernels compute: Adam 13 (weight decay 2, two moving averages 3
and 4, root, bias corrections 2, quotient, update), SGD with momentum 6 (weight decay 2, momentum 2, update 2). Least
bytes: every list read once; parameters and states written once. A list does not tell its dtype: float32 is taken.
"""

from __future__ import annotations

import math

from collector.traces.call import Call, Formula, Work

_FOREACH = {
    0: "copy zero",
    1: "add sub mul div sqrt neg abs exp reciprocal pow maximum minimum clamp_min",
    2: "norm",
    3: "addcmul addcdiv lerp",
}


def _for_each(operations: int, in_place: bool) -> Formula:
    """Return a foreach operator: all lists read once, one of the first one's size written."""

    def estimate(call: Call) -> Work | None:
        sizes = [sum(math.prod(shape) for shape in shapes) for shapes in call.lists]
        if not sizes or not sizes[0]:
            return None
        read = sum(size * call.element_bytes(place) for place, size in enumerate(sizes))
        if in_place and operations == 0:
            read -= sizes[0] * call.element_bytes(0)  # what a copy overwrites is not read
        return Work(float(operations * sizes[0]), read + sizes[0] * call.element_bytes(0))

    return estimate


def _norm(call: Call) -> Work | None:
    """Return _foreach_norm: the lists are read, the norms are too small to count."""
    size = sum(math.prod(shape) for shape in call.list_of(0))
    return Work(2.0 * size, size * call.element_bytes(0)) if size else None


def _fused(operations: int, states: int) -> Formula:
    """Return a fused optimizer of (parameters, gradients, states …); gradients are only read."""

    def estimate(call: Call) -> Work | None:
        size = sum(math.prod(shape) for shape in call.list_of(0))
        held = sum(1 for place in range(2, 2 + states) if call.list_of(place))
        lists = 2 * (1 + held) + 1
        return Work(float(operations * size), float(lists * size * call.element_bytes(0))) if size else None

    return estimate


FORMULAS: dict[str, Formula] = {
    **{
        f"_foreach_{name}{end}": _for_each(count, bool(end))
        for count, names in _FOREACH.items()
        for name in names.split()
        for end in ("", "_")
    },
    "_foreach_norm": _norm,
    **dict.fromkeys(("_fused_adam_", "_fused_adamw_"), _fused(13, 3)),
    "_fused_sgd_": _fused(6, 1),
}
