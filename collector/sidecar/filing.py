"""Samples of the training thread by phase: each waits until the row of steps that its time lies in is complete."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from collector.format.phases import PHASE_NAMES
from collector.sidecar.row_keeping import Done
from collector.sidecar.sampler import Sample
from collector.sidecar.steady import Steady

LONG_TIMES = 4
"""A row in which the job may have stood still is so many times as long as the one before."""
MOST_WAITING = 20_000
"""Samples of one row that is not complete; the oldest go first."""


class Filed(NamedTuple):
    """A sample with the kind of the row of steps, and the phase where that is known; `long_row` is the start of one that
    the job may have stood still in, 0 for any other."""

    sample: Sample
    kind: str | None
    phase: str | None
    long_row: int = 0


class PhaseFiler:
    """`see_row` and `see_steady` get the rows in time order; `more` gives the samples that were taken since."""

    def __init__(self, more: Callable[[], Iterable[Sample]], least_ns: int = 0) -> None:
        """`least_ns` is the shortest standstill, 0 or less where there are none."""
        self._more = more
        self._least_ns = least_ns
        self._usual_ns = 0
        self._waiting: deque[Sample] = deque(maxlen=MOST_WAITING)
        self._filed: list[Filed] = []

    def drain(self) -> None:
        """Take in the new samples."""
        self._waiting.extend(self._more())

    def find_newest(self, since_ns: int) -> Sample | None:
        """Return the last sample that waits for its row, None if it was taken before that time."""
        newest = self._waiting[-1] if self._waiting else None
        return newest if newest is not None and newest.at_ns >= since_ns else None

    def take(self) -> list[Filed]:
        filed, self._filed = self._filed, []
        return filed

    def see_row(self, done: Done) -> None:
        stretches = done.row.stretches
        starts = [stretch.start for stretch in stretches]
        long_row = self._find_long(done.row.start, done.end)
        for sample in self._take_between(done.row.start, done.end):
            at = bisect_right(starts, sample.at_ns) - 1
            is_inside = at >= 0 and sample.at_ns < stretches[at].end
            self._filed.append(
                Filed(sample, done.kind, PHASE_NAMES[stretches[at].phase] if is_inside else None, long_row)
            )

    def see_steady(self, steady: Steady) -> None:
        samples = self._take_between(int(steady.starts[0]), int(steady.ends[-1]))
        if not samples:
            return
        long_rows = [self._find_long(*row) for row in zip(steady.starts.tolist(), steady.ends.tolist(), strict=True)]
        times = np.array([sample.at_ns for sample in samples], np.int64)
        rows = np.searchsorted(steady.starts, times, "right") - 1
        stretches = (steady.edges[rows] <= times[:, None]).sum(1) - 1
        for sample, stretch, row in zip(samples, stretches.tolist(), rows.tolist(), strict=True):
            self._filed.append(Filed(sample, "train", PHASE_NAMES[steady.labels[stretch]], long_rows[row]))

    def _find_long(self, start: int, end: int) -> int:
        """Return the start of a row in which the job may have stood still, 0 for any other."""
        length, usual = end - start, self._usual_ns
        if 0 < self._least_ns <= length and length >= LONG_TIMES * usual:
            return start
        self._usual_ns = length
        return 0

    def _take_between(self, start_ns: int, end_ns: int) -> list[Sample]:
        """Return the samples of a row, and drop those before it: they lie in none."""
        self.drain()
        waiting, found = self._waiting, []
        while waiting and waiting[0].at_ns < end_ns:
            sample = waiting.popleft()
            if sample.at_ns >= start_ns:
                found.append(sample)
        return found
