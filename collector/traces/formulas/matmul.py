"""Products of matrices: 2·n·m·p operations for (n, m) x (m, p), as PyTorch's FlopCounterMode counts them.

Counted: a multiplication and an addition per element of the inner sum. Ignored: adding the bias, alpha and beta.
"""

from __future__ import annotations

import math

from collector.traces.call import Call, Formula, Shape, Work, broadcast


def _multiply(call: Call, first: int, second: int, added: int | None = None) -> Work | None:
    """Multiply two arguments as torch.matmul does, over any batch dimensions; `added` is read once if it is a tensor."""
    a, b = call.shape(first), call.shape(second)
    if a is None or b is None or not a or not b:
        return None
    result = _find_product(a, b)
    if result is None:
        return None
    read = call.tensor_bytes(first) + call.tensor_bytes(second) + (0 if added is None else call.tensor_bytes(added))
    return Work(2.0 * math.prod(result) * a[-1], read + math.prod(result) * call.element_bytes(first))


def _find_product(a: Shape, b: Shape) -> Shape | None:
    """Return the shape of the product of two tensors of at least one dimension, None if they do not fit."""
    inner = b[0] if len(b) == 1 else b[-2]
    batch = broadcast([a[:-2], b[:-2]])
    if a[-1] != inner or batch is None:
        return None
    return (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def _linear(call: Call) -> Work | None:
    """Return x·Wᵀ for x (…, in) and W (out, in)."""
    x, weight = call.shape(0), call.shape(1)
    if x is None or weight is None or len(weight) != 2 or not x or x[-1] != weight[1]:
        return None
    written = math.prod(x[:-1]) * weight[0]
    read = call.tensor_bytes(0) + call.tensor_bytes(1) + call.tensor_bytes(2)
    return Work(2.0 * written * weight[1], read + written * call.element_bytes(0))


def _einsum(call: Call) -> Work | None:
    """Return a contraction of two tensors whose equation is in the trace: 2 x the product of all its indices.

    Ignored: equations with an ellipsis, a repeated index in one operand, or more than two operands.
    """
    operands = call.list_of(1)
    terms, _, output = (call.values[0] if call.values else "").replace(" ", "").partition("->")
    inputs = terms.split(",")
    if not output or len(inputs) != 2 or len(operands) != 2 or "." in terms:
        return None
    sizes: dict[str, int] = {}
    for term, shape in zip(inputs, operands, strict=True):
        if len(term) != len(shape) or len(set(term)) != len(term):
            return None
        sizes.update(zip(term, shape, strict=True))
    if any(index not in sizes for index in output):
        return None
    elements = sum(math.prod(shape) for shape in operands) + math.prod(sizes[index] for index in output)
    return Work(2.0 * math.prod(sizes.values()), elements * call.element_bytes(1))


FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(
        ("mm", "bmm", "mv", "dot", "vdot", "matmul", "_scaled_mm", "_int_mm"), lambda c: _multiply(c, 0, 1)
    ),
    **dict.fromkeys(("addmm", "addmm_", "addmv", "addmv_", "baddbmm", "baddbmm_"), lambda c: _multiply(c, 1, 2, 0)),
    "_addmm_activation": lambda call: _multiply(call, 1, 2, 0),
    "linear": _linear,
    "einsum": _einsum,
}
