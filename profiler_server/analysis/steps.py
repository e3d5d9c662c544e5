"""Training steps: which of them an average covers, their distribution, and the phases they are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collector.schema.phases import PHASE_NAMES
from profiler_server.analysis.results import Distribution, PhaseShare, StepSummary

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

WARM_UP_MIN_STEPS = 10
"""A run or trace of fewer training steps is averaged whole: too short to tell a warm-up from chance."""
WARM_UP_MAX_SHARE = 0.2
WARM_UP_RATIO = 1.25
"""A step at the start belongs to the warm-up while it, or one of the two after it, is so many times the typical step."""


@dataclass(frozen=True)
class StepSelection:
    """Training steps as arrays of equal length in time order, and what each is.

    `kept` are those that an average covers: neither warm-up nor inside a detailed window. `regular` leaves out the
    amortised events too (first of an epoch): what the noise and the loader model are made from.
    """

    step: Int64
    duration_ns: Int64
    warm_up: Mask
    detailed: Mask
    first_of_epoch: Mask
    kept: Mask
    regular: Mask


def select_steps(steps: pa.Table) -> StepSelection:
    """Label the training steps of a `steps` table.

    Steps in a detailed window are kept only where nearly nothing else was recorded, as in an imported trace.
    """
    train = train_steps(steps)
    duration = read_integers(train, "duration_ns")
    detailed = read_integers(train, "detailed") > 0
    warm_up = _find_warm_up(duration)
    first = _find_first_of_epoch(train)
    kept = ~warm_up & ~detailed
    if kept.sum() < min(WARM_UP_MIN_STEPS, int(detailed.sum())):
        kept = ~warm_up
    return StepSelection(read_integers(train, "step"), duration, warm_up, detailed, first, kept, kept & ~first)


def train_steps(steps: pa.Table) -> pa.Table:
    """Return the rows of a `steps` table that are training steps."""
    kinds = steps.column("kind").combine_chunks().cast(pa.string())
    return steps.filter(pc.equal(kinds, "train"))


def read_integers(table: pa.Table, name: str) -> Int64:
    """Return a column of integers or flags as int64, null as 0."""
    values = table.column(name).cast(pa.int64()).fill_null(0).to_numpy()
    return np.asarray(values, dtype=np.int64)


def _find_warm_up(duration: Int64) -> Mask:
    count = len(duration)
    mask = np.zeros(count, dtype=bool)
    if count < WARM_UP_MIN_STEPS:
        return mask
    limit = min(int(count * WARM_UP_MAX_SHARE), 200)
    slow = duration[:limit] > WARM_UP_RATIO * np.median(duration[count // 3 :])
    length = 0
    while length < limit and slow[length : length + 3].any():
        length += 1
    mask[:length] = True
    return mask


def _find_first_of_epoch(train: pa.Table) -> Mask:
    return read_integers(train, "loader_start_ns") > 0


def summarize_steps(steps: pa.Table) -> StepSummary:
    """Summarise a `steps` table: `count`, `first` and `last` of all training steps, `duration_ns` of those kept."""
    selection = select_steps(steps)
    if not len(selection.step):
        return StepSummary(0, None, None, (), None)
    numbers = selection.step
    excluded = tuple(int(number) for number in numbers[~selection.kept])
    durations = selection.duration_ns[selection.kept]
    return StepSummary(len(numbers), int(numbers[0]), int(numbers[-1]), excluded, summarize_durations(durations))


def summarize_durations(values: Int64) -> Distribution | None:
    """Return the distribution of times in ns; percentiles interpolate linearly; None for no values."""
    if not len(values):
        return None
    p50, p90, p95, p99, p999 = np.percentile(values, (50, 90, 95, 99, 99.9))
    return Distribution(
        mean=int(values.sum()) / len(values),
        std=float(values.std()),
        min=int(values.min()),
        p50=float(p50),
        p90=float(p90),
        p95=float(p95),
        p99=float(p99),
        p999=float(p999),
        max=int(values.max()),
    )


def summarize_phases(steps: pa.Table) -> tuple[PhaseShare, ...]:
    """Return the parts of the mean step, over the steps that `summarize_steps` averages; empty if there are none."""
    kept = select_steps(steps).kept
    count = int(kept.sum())
    if not count:
        return ()
    train = train_steps(steps)
    sums = {name: int(read_integers(train, f"{name}_ns")[kept].sum()) for name in PHASE_NAMES}
    whole = sum(sums.values())
    return tuple(PhaseShare(name, value / count, value / whole if whole else 0.0) for name, value in sums.items())


OutlierCause = Literal["warm_up", "window", "first_of_epoch", "gc", "phase"]


@dataclass(frozen=True)
class Outlier:
    """A step that took much longer than the typical one, and why.

    `phase` grew most, by `phase_excess_ns`; `cause` is what explains it: garbage collection where that was at least
    half of the excess, and only the phase where nothing else is known.
    """

    step: int
    start_ns: int
    duration_ns: int
    excess_ns: float
    phase: str
    phase_excess_ns: float
    cause: OutlierCause


@dataclass(frozen=True)
class Trend:
    """How steady the steps were. `drift_frac` is how much longer the last third took than the first third.

    `jitter_frac` is the robust standard deviation (1.4826 × the median distance from the median) over the median.
    """

    drift_frac: float
    jitter_frac: float
    outlier_frac: float


def list_outliers(steps: pa.Table, limit: int = 50) -> tuple[Outlier, ...]:
    """Return the training steps that took at least a quarter longer than the typical one, the longest first."""
    train, selection = train_steps(steps), select_steps(steps)
    threshold = find_outlier_threshold(selection)
    if threshold is None:
        return ()
    rows = np.flatnonzero(selection.duration_ns > threshold)
    rows = rows[np.argsort(-selection.duration_ns[rows], kind="stable")][:limit]
    regular = selection.regular if selection.regular.any() else selection.kept
    phases = np.stack([read_integers(train, f"{name}_ns") for name in PHASE_NAMES])
    excess = phases[:, rows] - np.median(phases[:, regular], axis=1)[:, None]
    typical = float(np.median(selection.duration_ns[regular]))
    starts, gc_ns = read_integers(train, "start_ns"), read_integers(train, "gc_ns")
    found = []
    for place, row in enumerate(rows):
        phase = int(np.argmax(excess[:, place]))
        over = float(selection.duration_ns[row] - typical)
        found.append(
            Outlier(
                step=int(selection.step[row]),
                start_ns=int(starts[row]),
                duration_ns=int(selection.duration_ns[row]),
                excess_ns=over,
                phase=PHASE_NAMES[phase],
                phase_excess_ns=float(excess[phase, place]),
                cause=_name_cause(selection, int(row), gc_ns[row] >= over / 2),
            )
        )
    return tuple(found)


def _name_cause(selection: StepSelection, row: int, collected: bool) -> OutlierCause:
    if selection.first_of_epoch[row]:
        return "first_of_epoch"
    if selection.warm_up[row]:
        return "warm_up"
    if selection.detailed[row] and not selection.kept[row]:
        return "window"
    return "gc" if collected else "phase"


def find_outlier_threshold(selection: StepSelection) -> float | None:
    """Return the step time in ns above which a step is an outlier, None for too few steps to say."""
    regular = selection.duration_ns[selection.regular]
    if len(regular) < WARM_UP_MIN_STEPS:
        return None
    middle = float(np.median(regular))
    spread = 1.4826 * float(np.median(np.abs(regular - middle)))
    return middle + max(5.0 * spread, 0.25 * middle)


def summarize_trend(steps: pa.Table) -> Trend | None:
    """Return how steady the regular steps were, None for too few to say."""
    selection = select_steps(steps)
    threshold = find_outlier_threshold(selection)
    if threshold is None:
        return None
    regular = selection.duration_ns[selection.regular]
    third = len(regular) // 3
    first, last = np.median(regular[:third]), np.median(regular[-third:])
    middle = float(np.median(regular))
    jitter = 1.4826 * float(np.median(np.abs(regular - middle))) / middle if middle else 0.0
    drift = float((last - first) / first) if first else 0.0
    return Trend(drift, jitter, float((regular > threshold).mean()))
