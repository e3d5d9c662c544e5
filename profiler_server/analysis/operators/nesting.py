"""How deep rows stand that name the row around them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from collector.format.intervals import Ints

_DEEPEST = 300
"""Levels that are followed: rows of a damaged table that name each other end there."""


def count_parents(ids: Ints, parents: Ints) -> npt.NDArray[np.int32]:
    """Return how many rows are around each; one whose parent is not there stands outermost."""
    if not ids.size:
        return np.zeros(0, np.int32)
    order = np.argsort(ids)
    at = np.minimum(np.searchsorted(ids, parents, sorter=order), ids.size - 1)
    above = np.where(ids[order[at]] == parents, order[at], -1)
    return count_levels(above, np.arange(ids.size)).astype(np.int32)


def count_levels(parent: Ints, rows: Ints) -> Ints:
    """Return how many rows are around each of `rows`. `parent` is of all rows: which one is around each, -1 for none."""
    depth = np.zeros(len(rows), np.int64)
    above = parent[rows]
    for _ in range(_DEEPEST):  # one round per level
        inside = above >= 0
        if not inside.any():
            break
        depth += inside
        above = np.where(inside, parent[above], -1)
    return depth
