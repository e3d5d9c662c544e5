"""Find rows of a batch that are filled up: by a mask that names them, else by the numbers themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collector.context.numbers import take_some
from collector.context.tokens import Tokens

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MOST_ROWS, MOST_NUMBERS, MOST_SAMPLED = 64, 1 << 18, 4096
LEAST_ROWS, LEAST_TIME, LEAST_LENGTHS = 4, 8, 3
INSIDE_FRAC = 0.05
"""If a fill value takes more than this share of the rows before their padding, it is an ordinary value: zeros of sparse
features, of image borders, of random masks."""


@dataclass(frozen=True)
class Padding:
    """Padding of a batch of `rows` rows that are `width` long.

    `useful_frac` is the share of the batch that is not padding; `longest_frac` is the unpadded share of the longest
    row.
    """

    useful_frac: float
    longest_frac: float
    width: int
    rows: int


def take_mask(tokens: Tokens) -> Padding | None:
    whole = tokens.rows * tokens.width
    if tokens.real == whole:
        return None
    return Padding(tokens.real / whole, tokens.longest / tokens.width, tokens.width, tokens.rows)


def find_in_call(arrays: Sequence[npt.NDArray[Any]]) -> Padding | None:
    """Return the padding among the arguments of a call, None without. An array of two values (a mask) counts only
    beside another array of equal batch × time.
    """
    for array in arrays:
        beside = sum(other.shape[:2] == array.shape[:2] for other in arrays) > 1
        found = find_padding(array)
        if found is not None and (beside or not _is_mask(array)):
            return found
    return None


def count_positions(arrays: Sequence[npt.NDArray[Any]]) -> int:
    """Return batch × time of the first argument with such dimensions, 0 if there is none."""
    return next((math.prod(array.shape[:2]) for array in arrays if array.ndim > 1), 0)


def _is_mask(array: npt.NDArray[Any]) -> bool:
    some = take_some(array, MOST_SAMPLED)
    return bool(((some == some.min()) | (some == some.max())).all())


def find_padding(array: npt.NDArray[Any]) -> Padding | None:
    """Return the padding of rows that one value fills up, at their end or at their start, from different places on;
    None without such rows.

    The first dimension of the array is the batch. Any other one may be time, or the width or height of an image.
    """
    if array.ndim < 2 or len(array) < LEAST_ROWS:
        return None
    rows = array[: min(MOST_ROWS, max(MOST_NUMBERS * len(array) // max(array.size, 1), LEAST_ROWS))]
    if rows.size > MOST_NUMBERS:
        return None
    for axis in range(1, rows.ndim):
        if rows.shape[axis] < LEAST_TIME:
            continue
        view = rows.swapaxes(1, axis).reshape(len(rows), rows.shape[axis], -1)
        for side in (slice(None), slice(None, None, -1)):
            if (found := _find_tail(view[:, side], len(array))) is not None:
                return found
    return None


def _find_tail(rows: npt.NDArray[Any], count: int) -> Padding | None:
    """Return the padding at the ends of `rows`, an array of batch × time × features; None without it."""
    import numpy as np

    width = rows.shape[1]
    values, counts = np.unique(rows[:, -1, 0], return_counts=True)
    if 2 * counts.max() < len(rows):
        return None
    is_fill = (rows == values[counts.argmax()]).all(axis=2)
    tails = np.where(is_fill.all(axis=1), width, (~is_fill[:, ::-1]).argmax(axis=1))
    lengths = width - tails
    inside = int(is_fill.sum() - tails.sum())
    if inside > INSIDE_FRAC * lengths.sum() or _is_drawn(lengths, width):
        return None
    return Padding(float(lengths.mean() / width), float(lengths.max() / width), width, count)


def _is_drawn(lengths: npt.NDArray[np.int64], width: int) -> bool:
    """Return whether `lengths`, the unpadded lengths of the rows, cannot be those of real sequences: too few differ, or
    they grow evenly as in a causal mask.
    """
    import numpy as np

    return len(np.unique(lengths)) < LEAST_LENGTHS or len(np.unique(np.diff(lengths))) == 1
