"""Every training step of a rank, summed over stretches so that a long run takes no more room than a short one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from collector.format.intervals import Floats, Ints
from collector.format.phases import PHASE_NAMES
from collector.format.steps import read_integers

MOST_STRETCHES = 160
"""As many as a map has columns: the track of each of thousands of ranks is kept."""


@dataclass(frozen=True, eq=False)
class Track:
    """Steps of one rank in stretches of `size` steps, a power of two; stretch i holds steps i·size to (i + 1)·size - 1.

    `stretch` are the numbers of those that hold a step, `count` how many; `parts_ns` (phases, stretches) and `samples`
    are sums.
    """

    size: int
    stretch: Ints
    count: Ints
    parts_ns: Floats
    samples: Ints


NO_TRACK = Track(1, *(np.empty(0, np.int64),) * 2, np.empty((len(PHASE_NAMES), 0)), np.empty(0, np.int64))


def read_track(train: pa.Table) -> Track:
    """Sum a table of training steps by stretches."""
    step = read_integers(train, "step")
    if not len(step):
        return NO_TRACK
    size = find_size(int(step.min()), int(step.max()), MOST_STRETCHES)
    stretch, place = np.unique(step // size, return_inverse=True)
    parts = [np.bincount(place, read_integers(train, f"{name}_ns"), len(stretch)) for name in PHASE_NAMES]
    samples = np.bincount(place, read_integers(train, "samples", absent=0), len(stretch)).astype(np.int64)
    return Track(size, stretch, np.bincount(place, minlength=len(stretch)), np.stack(parts), samples)


def find_size(first: int, last: int, most: int) -> int:
    """Return the least power of two of which at most so many stretches hold these steps."""
    size = 1
    while last // size - first // size + 1 > most:
        size *= 2
    return size
