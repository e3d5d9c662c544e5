"""Ids of a trace as integers, whatever a file puts in their place."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from collector.traces.kineto.clock import Ints
from collector.traces.kineto.events import Loose

NO_ID = -1
_LONGEST = 66
"""64 binary digits with their prefix: what is longer is no id, and is not looked at."""


def read_ids(values: Iterable[Loose], absent: int = NO_ID) -> Ints:
    """Return ids as int64: unsigned ones of 64 bits keep their bits, what is no number is -1.

    The type is given to numpy: left to itself it makes texts of all of them as long as the longest.
    """
    items = [absent if value is None else value for value in values]
    if set(map(type, items)) <= {int}:
        try:
            return np.array(items, np.int64)
        except OverflowError:
            pass
    return np.array([absent if value == absent else read_id(value) for value in items], np.int64)


def read_id(value: Loose) -> int:
    """Return one id as a signed integer of 64 bits, -1 for what is no number."""
    if isinstance(value, str) and len(value) > _LONGEST:
        return NO_ID
    try:
        number = int(value, 0) if isinstance(value, str) else int(value if value is not None else NO_ID)
    except (ValueError, OverflowError):
        return NO_ID
    number &= (1 << 64) - 1
    return number - (1 << 64) if number >= 1 << 63 else number
