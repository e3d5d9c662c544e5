"""Every training step of a rank, summed over stretches so that a long run takes no more room than a short one."""

from __future__ import annotations

from collections.abc import Mapping
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


@dataclass(frozen=True)
class RankGrid:
    """A figure by rank (row) and stretch of `size` steps from `first` on (column); not a number where it is not known."""

    ranks: tuple[int, ...]
    first: Ints
    size: int
    values: Floats


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


def grid_steps(tracks: Mapping[int, Track], figure: str, columns: int) -> RankGrid:
    """Return the mean of a figure: `own`, `step`, `sample` (time per sample), or a phase. Ranks without steps stay empty."""
    known = [track for track in tracks.values() if len(track.stretch)]
    if not known:
        return RankGrid(tuple(tracks), np.empty(0, np.int64), 1, np.empty((len(tracks), 0)))
    first = min(int(track.stretch[0]) * track.size for track in known)
    last = max(int(track.stretch[-1] + 1) * track.size - 1 for track in known)
    size = max(find_size(first, last, columns), *(track.size for track in known))
    begin = first // size
    values = np.full((len(tracks), last // size - begin + 1), np.nan)
    for row, track in zip(values, tracks.values(), strict=True):
        at = track.stretch * track.size // size - begin
        total, count = _weigh(track, figure)
        counts = np.bincount(at, count, len(row))
        np.divide(np.bincount(at, total, len(row)), counts, out=row, where=counts > 0)
    starts = (begin + np.arange(values.shape[1], dtype=np.int64)) * size
    return RankGrid(tuple(tracks), np.maximum(starts, 1) if size > 1 else starts, size, values)


def _weigh(track: Track, figure: str) -> tuple[Floats, Ints]:
    """Return the sums of a figure by stretch, and what they are divided by."""
    whole = track.parts_ns.sum(axis=0)
    if figure == "sample":
        return np.where(track.samples > 0, whole, 0.0), track.samples
    if figure == "step":
        return whole, track.count
    if figure == "own":
        return whole - track.parts_ns[PHASE_NAMES.index("communication")], track.count
    return track.parts_ns[PHASE_NAMES.index(figure)], track.count
