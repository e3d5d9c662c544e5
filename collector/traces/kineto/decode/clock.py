"""Convert decimal microseconds to integer nanoseconds, without losing a digit.

A double holds a time in µs exactly to the ns only below 2^43 µs (101 days). Files with a base time of their own stay
below this limit. Files with wall-clock times do not, so their text is converted instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import msgspec
import numpy as np
import pyarrow as pa

from collector.format.arrays import from_texts
from collector.format.intervals import Ints, Mask
from collector.traces.kineto.decode.events import Loose

EXACT_DOUBLE_US = float(1 << 43)
MOST_NS = (1 << 62) - 1
"""The greatest time in ns: no clock shows more before 2116, and the sum of two such times fits 64 bits."""
NO_TIME = -(1 << 63)
"""Stands for an invalid time: missing, no number, or more than MOST_NS."""


_NUMBERS = frozenset({int, float})
_LONGEST = 64
"""A longer text is no time, and is not parsed."""


class InexactTimesError(ValueError):
    """The decoded doubles cannot hold the times exactly; the times must be read from the text."""


def convert_numbers(values: Sequence[Loose], rounded: Mask | None = None) -> Ints:
    """Return decoded µs as ns; an invalid time becomes NO_TIME. Raises InexactTimesError if a double is not exact.

    `rounded` has an entry per time, which is set to true if the time is finer than a ns.
    """
    array = np.array(values) if set(map(type, values)) <= _NUMBERS else np.array(None)
    if array.dtype.kind == "i" and (not len(array) or np.abs(array).max() <= MOST_NS // 1000):
        exact: Ints = array.astype(np.int64) * 1000
        return exact
    if array.dtype.kind != "f":
        if any(isinstance(value, float) and abs(value) >= EXACT_DOUBLE_US for value in values):
            raise InexactTimesError
        return _convert_all(["" if value is None else str(value) for value in values], rounded)
    if not (np.abs(array) < EXACT_DOUBLE_US).all():
        raise InexactTimesError
    whole = np.floor(array)
    fraction = (array - whole) * 1000
    nearest = np.rint(fraction)
    if rounded is not None:
        # A double is away from three decimals by half of its last bit at most, and so is the product.
        rounded |= np.abs(fraction - nearest) > 501 * np.spacing(np.abs(array)) + np.spacing(fraction)
    times_ns: Ints = whole.astype(np.int64) * 1000 + nearest.astype(np.int64)
    return times_ns


def convert_texts(values: Sequence[msgspec.Raw], rounded: Mask | None = None, absent: str = "") -> Ints:
    """Return µs in the file's spelling as ns; an invalid time becomes NO_TIME. `absent` replaces a missing time.

    `rounded` has an entry per time, which is set to true if the time is finer than a ns.
    """
    texts = [bytes(value).strip(b'"').decode("ascii", "replace") or absent for value in values]
    try:
        # A decimal with three places is stored as its digits: the low word of each decimal is the time in ns.
        decimals = from_texts(texts).cast(pa.decimal128(22, 3))
    except pa.ArrowInvalid:
        return _convert_all([absent if text == "null" else text for text in texts], rounded)
    words = np.frombuffer(decimals.buffers()[1], np.int64)[: 2 * len(texts)]
    times_ns = words[::2].copy()
    times_ns[(words[1::2] != times_ns >> 63) | (times_ns > MOST_NS) | (times_ns < -MOST_NS)] = NO_TIME
    return times_ns


def convert_one(value: Loose) -> int:
    return _convert_text(str(value))[0] if value is not None else NO_TIME


def _convert_all(texts: Sequence[str], rounded: Mask | None) -> Ints:
    found = [_convert_text(text) for text in texts]
    if rounded is not None:
        rounded |= np.array([is_finer for _, is_finer in found], bool)
    return np.array([time_ns for time_ns, _ in found], np.int64)


def _convert_text(text: str) -> tuple[int, bool]:
    """Return the time in `text` in ns, and whether the text is finer than a ns."""
    if len(text) > _LONGEST:
        return NO_TIME, False
    try:
        time_ns = Decimal(text) * 1000
        if abs(time_ns) > MOST_NS:
            return NO_TIME, False
        whole_ns = time_ns.to_integral_value()
        return int(whole_ns), whole_ns != time_ns
    except ArithmeticError:
        return NO_TIME, False
