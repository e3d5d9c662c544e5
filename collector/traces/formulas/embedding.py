"""Look-ups in tables: no arithmetic forward, an addition per element backward.

Least bytes: the indices, the rows that are read, and the result; the rest of the table is not touched.
"""

from __future__ import annotations

import math

from collector.traces.call import Call, Formula, Work


def _look_up(call: Call) -> Work | None:
    """Return aten::embedding of (weight (rows, width), indices)."""
    weight, indices = call.shape(0), call.shape(1)
    if weight is None or indices is None or len(weight) != 2:
        return None
    rows = math.prod(indices) * weight[1] * call.element_bytes(0)
    return Work(0.0, 2 * rows + call.tensor_bytes(1))


def _add_up(call: Call) -> Work | None:
    """Return aten::embedding_dense_backward of (grad_output, indices, rows): the whole gradient is written where known."""
    gradient, rows = call.shape(0), call.integers(2)
    if not gradient:
        return None
    written = rows[0] * gradient[-1] * call.element_bytes(0) if rows else call.tensor_bytes(0)
    return Work(float(math.prod(gradient)), call.tensor_bytes(0) + call.tensor_bytes(1) + written)


FORMULAS: dict[str, Formula] = {"embedding": _look_up, "embedding_dense_backward": _add_up}
