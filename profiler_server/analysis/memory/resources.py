"""Samples of processor, memory, disk and GPU as series over the training steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from collector.format.intervals import Floats, Ints, Mask
from collector.format.run import RankRun
from collector.format.schema.errors import TableMissingError
from collector.format.steps import read_integers, train_steps


@dataclass(frozen=True)
class StepScale:
    """Turns times into places on an axis of training steps: step 7 lasts from 7.0 to 8.0. Without steps into seconds."""

    number: Ints
    start_ns: Ints
    end_ns: Ints

    @classmethod
    def empty(cls) -> StepScale:
        nothing = np.empty(0, np.int64)
        return cls(nothing, nothing, nothing)

    @property
    def unit(self) -> str:
        return "step" if len(self.number) else "s"

    def place(self, times_ns: Ints) -> Floats:
        """Return the place of each time; what lies between two steps lies at their border, outside it is not a number."""
        if not len(self.number):
            return times_ns / 1e9
        knots = np.stack([self.start_ns, self.end_ns], axis=1).reshape(-1)
        numbers = np.stack([self.number, self.number + 1], axis=1).reshape(-1).astype(np.float64)
        return np.asarray(np.interp(times_ns, knots, numbers, left=np.nan, right=np.nan), np.float64)


@dataclass(frozen=True)
class Series:
    """One figure of one source over the steps, in time order; `value` is in the unit that ends the metric's name."""

    source: str
    metric: str
    x: Floats
    value: Floats

    @property
    def mean(self) -> float:
        return float(self.value.mean())

    @property
    def peak(self) -> float:
        return float(self.value.max())


@dataclass(frozen=True)
class Resources:
    """All series of a rank inside of a range of steps. `samples` were taken, `outside` of them lie outside of any step.

    `unit` is what x counts: step, or s where the run has no steps.
    """

    series: tuple[Series, ...]
    samples: int
    outside: int
    unit: str

    def find(self, source: str, metric: str) -> Series | None:
        return next((entry for entry in self.series if (entry.source, entry.metric) == (source, metric)), None)

    def pick(self, metric: str, prefix: str = "") -> tuple[Series, ...]:
        """Return the series of a metric whose source begins with `prefix`."""
        return tuple(entry for entry in self.series if entry.metric == metric and entry.source.startswith(prefix))


def read_scale(rank: RankRun) -> StepScale:
    """Read where the training steps lie in time; no steps where the run has none.

    Raises TableBrokenError or NewerSchemaError.
    """
    try:
        train = train_steps(rank.table("steps", ("kind", "step", "start_ns", "duration_ns")))
    except TableMissingError:
        return StepScale.empty()
    start = read_integers(train, "start_ns")
    return StepScale(read_integers(train, "step"), start, start + read_integers(train, "duration_ns"))


def read_resources(rank: RankRun, scale: StepScale, steps: tuple[int, int] | None = None) -> Resources:
    """Read the samples of a rank, those of steps `steps[0]` to `steps[1]` only where a range is given.

    Raises TableMissingError, TableBrokenError or NewerSchemaError.
    """
    table = rank.table("resources", ("start_ns", "source", "metric", "value")).sort_by("start_ns")
    times = read_integers(table, "start_ns")
    x = scale.place(times)
    inside = np.isfinite(x)
    if steps is not None:
        inside &= (x >= steps[0]) & (x < steps[1] + 1)
    values = np.asarray(table["value"].to_numpy(), np.float64)
    inside &= np.isfinite(values)
    series = _split(table, x, values, inside)
    moments = np.unique(times[np.isfinite(x)])
    return Resources(series, len(np.unique(times)), len(np.unique(times)) - len(moments), scale.unit)


def _split(table: pa.Table, x: Floats, values: Floats, inside: Mask) -> tuple[Series, ...]:
    source, sources = _number(table, "source")
    metric, metrics = _number(table, "metric")
    key = source * max(len(metrics), 1) + metric
    found = []
    for code in np.unique(key[inside]).tolist():
        rows = np.flatnonzero(inside & (key == code))
        found.append(Series(sources[code // len(metrics)], metrics[code % len(metrics)], x[rows], values[rows]))
    return tuple(sorted(found, key=lambda entry: (entry.metric, _order(entry.source))))


def _number(table: pa.Table, name: str) -> tuple[Ints, list[str]]:
    column = table[name].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    return np.asarray(column.indices.to_numpy(zero_copy_only=False), np.int64), column.dictionary.to_pylist()


def _order(source: str) -> tuple[int, str]:
    """Sort `worker 2` before `worker 10`, and what is no worker by its name."""
    return (len(source), source) if source.startswith(("worker ", "gpu ")) else (0, source)


def sum_series(series: Sequence[Series], source: str) -> Series | None:
    """Add series that were sampled at the same moments or nearly so, on the places of the longest; None for none."""
    if not series:
        return None
    base = max(series, key=lambda entry: len(entry.x))
    total = np.zeros(len(base.x))
    for entry in series:
        # A worker that has ended or not begun adds nothing.
        total += np.interp(base.x, entry.x, entry.value, left=0.0, right=0.0)
    return Series(source, base.metric, base.x, total)


@dataclass(frozen=True)
class Throttling:
    """Parts of the samples of one GPU in which something held its clock down, and what did: power, heat, other."""

    source: str
    share_frac: float
    causes: tuple[tuple[str, float], ...]


_THROTTLE_CAUSES = {1: "power", 2: "heat", 4: "other"}


def find_throttling(resources: Resources) -> tuple[Throttling, ...]:
    """Return the GPUs whose clock was held down in some sample; the most frequent cause of each stands first."""
    found = []
    for series in resources.pick("throttle_flags", "gpu "):
        flags = series.value.astype(np.int64)
        if not flags.any():
            continue
        shares = [(name, float((flags & flag > 0).mean())) for flag, name in _THROTTLE_CAUSES.items()]
        causes = tuple(sorted((entry for entry in shares if entry[1]), key=lambda entry: -entry[1]))
        found.append(Throttling(series.source, float((flags > 0).mean()), causes))
    return tuple(found)
