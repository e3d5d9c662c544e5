"""How deep rows stand that name the row around them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collector.format.intervals import Ints

_DEEPEST = 200


def count_parents(ids: Ints, parents: Ints) -> npt.NDArray[np.int32]:
    """Return how many rows are around each; one whose parent is not there stands outermost."""
    depth = np.zeros(ids.size, np.int32)
    if not ids.size:
        return depth
    order = np.argsort(ids)
    at = np.minimum(np.searchsorted(ids, parents, sorter=order), ids.size - 1)
    above = np.where(ids[order[at]] == parents, order[at], -1)
    current = above
    # One round per level; a damaged table that loops ends at the limit.
    for _ in range(_DEEPEST):
        inside = current >= 0
        if not inside.any():
            break
        depth += inside
        current = np.where(inside, above[current], -1)
    return depth
