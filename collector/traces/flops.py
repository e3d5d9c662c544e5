"""Floating-point operations and least bytes of an operator's call, from its shapes and dtypes.

An estimate counts the arithmetic that the definition of an operator needs: a multiplication and an addition are two
operations, an exponential or a root is one. It ignores what an implementation adds (recomputation, padding to tiles,
Winograd or FFT savings). The least bytes are every input read once and every output written once; caches cannot beat it.
"""

from __future__ import annotations

import math
from functools import cache

from collector.plugins import find_plugins
from collector.traces import formulas
from collector.traces.call import Formula, Work, read_call

PREFIX = "aten::"


def estimate_work(name: str, shapes: str | None, dtypes: str | None, values: str | None = None) -> Work | None:
    """Estimate one call; None where no formula is known or the shapes do not tell enough.

    `shapes`, `dtypes` and `values` are the trace's "Input Dims", "Input type" and "Concrete Inputs" as JSON.
    """
    formula = find_formula(name)
    if formula is None or shapes is None:
        return None
    call = read_call(shapes, dtypes, values)
    if call is None:
        return None
    work = formula(call)
    return work if work is not None and math.isfinite(work.flops) and math.isfinite(work.moved_bytes) else None


def find_formula(name: str) -> Formula | None:
    """Return the formula of an operator, None for one without."""
    return _list_formulas().get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None


@cache
def _list_formulas() -> dict[str, Formula]:
    found: dict[str, Formula] = {}
    for family in find_plugins(formulas, "FORMULAS"):
        found.update(family)
    return found
