"""Figures of the steps: percentiles of every phase, jitter, trend, throughput, micro-batches, and steps above the scale
of a chart.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from collector.format.intervals import Floats, Ints
from collector.format.phases import PHASE_NAMES
from collector.format.rank import read_step_rows
from collector.format.run import RankRun
from collector.format.schema.errors import read_or
from collector.format.steps import (
    FEWEST_RANKED,
    Noun,
    StepSelection,
    read_integers,
    select_steps,
    summarize_durations,
    train_steps,
)
from profiler_server.derive.derived import derived
from profiler_server.diagnosis.limits.steps import CARRIED_FRAC, CARRIED_STEPS, CUT_RATIO, FAR_RATIO, TREND_STEPS


@dataclass(frozen=True)
class StepSpan:
    """The first and the last step of a rank. `noun` is the word for a step: batch or call in a run without training."""

    first: int
    last: int
    noun: Noun = "step"


@derived()
def find_step_span(rank: RankRun) -> StepSpan | None:
    """Return the first and the last step of a rank; None if it has none, or if they cannot be read."""
    # Every page asks, and the steps of a long run take a while to read.
    rows = read_or(None, read_step_rows, rank, ("kind", "step"))
    if rows is None:
        return None
    numbers = train_steps(rows.steps)["step"]
    return StepSpan(pc.min(numbers).as_py(), pc.max(numbers).as_py(), rows.noun) if len(numbers) else None


WINDOW_MIN_STEPS = FEWEST_RANKED
MOST_WINDOWS = 60


@dataclass(frozen=True)
class PhaseSpread:
    """One phase over the `steps` steady steps. `share_frac` is its share of the mean step. `p95_ns` is None with few
    steps. `carrier` is the step with most of the phase's time, None if the time is spread over steps."""

    name: str
    steps: int
    mean_ns: float
    share_frac: float
    p50_ns: float
    p95_ns: float | None
    carrier: int | None = None


@dataclass(frozen=True)
class Stability:
    """Variation and growth of the steps; both None with too few steps.

    `jitter_frac` is the standard deviation divided by the mean. `trend_frac` is the trimmed mean step of the last
    quarter divided by that of the first quarter, minus 1: a median jumps where batches come in pairs.
    """

    jitter_frac: float | None
    trend_frac: float | None


@dataclass(frozen=True)
class Band:
    """Percentiles of the step duration along the run, one value per section of `window_steps` steps. `step` is the
    middle step of each section.

    Empty if the run has fewer steps than one section.
    """

    step: Ints
    p50_ns: Floats
    p95_ns: Floats
    window_steps: int


def summarize_spread(steps: pa.Table) -> tuple[PhaseSpread, ...]:
    """Return mean, quantiles and share of each phase over the steady steps, in the order of the phases in a step.

    The means sum to the mean step. Without steady steps the result is empty.
    """
    selection = select_steps(steps)
    kept = selection.kept
    if not kept.any():
        return ()
    train = train_steps(steps)
    phases = {name: read_integers(train, f"{name}_ns")[kept] for name in PHASE_NAMES}
    whole = sum(int(values.sum()) for values in phases.values())
    rows = []
    for name, values in phases.items():
        times = summarize_durations(values)
        if times is not None:
            share = int(values.sum()) / whole if whole else 0.0
            carrier = _find_carrier(selection.step[kept], values)
            rows.append(PhaseSpread(name, times.count, times.mean, share, times.p50, times.p95, carrier))
    return tuple(rows)


def _find_carrier(numbers: Ints, values: Ints) -> int | None:
    whole, greatest = int(values.sum()), int(values.max())
    if len(values) < CARRIED_STEPS or greatest <= CARRIED_FRAC * whole:
        return None
    return int(numbers[values.argmax()])


def summarize_stability(steps: pa.Table) -> Stability:
    """Return jitter and trend of the steady steps."""
    selection = select_steps(steps)
    durations = selection.duration_ns[selection.kept]
    if len(durations) < 2:
        return Stability(None, None)
    jitter = float(durations.std() / durations.mean()) if durations.mean() else None
    if len(durations) < TREND_STEPS:
        return Stability(jitter, None)
    quarter = len(durations) // 4
    first, last = _trim_mean(durations[:quarter]), _trim_mean(durations[-quarter:])
    return Stability(jitter, last / first - 1.0 if first else None)


def _trim_mean(durations: Ints) -> float:
    """Return the mean without the shortest and the longest tenth."""
    cut = len(durations) // 10
    return float(np.sort(durations)[cut : len(durations) - cut].mean())


def trace_band(step: Ints, duration_ns: Ints) -> Band:
    """Return the p50 and p95 of equally long sections: at most sixty, each of at least twenty steps.

    With fewer than two sections, the percentiles of all steps are returned for the first and for the last step.
    """
    window = max(WINDOW_MIN_STEPS, -(-len(step) // MOST_WINDOWS))
    whole = len(step) // window
    if whole < 2:
        return _band_of_all(step, duration_ns)
    used = whole * window
    p50, p95 = np.percentile(duration_ns[:used].reshape(whole, window), (50, 95), axis=1)
    return Band(step[:used].reshape(whole, window)[:, window // 2], p50, p95, window)


def _band_of_all(step: Ints, duration_ns: Ints) -> Band:
    if len(step) < WINDOW_MIN_STEPS:
        return Band(step[:0], np.array([]), np.array([]), 0)
    p50, p95 = np.percentile(duration_ns, (50, 95))
    return Band(step[[0, -1]], np.array([p50, p50]), np.array([p95, p95]), len(step))


def count_micro_batches(steps: pa.Table) -> int:
    """Return the number of micro-batches of the usual step; 1 for one batch and one update.

    A step accumulates if each of its backwards had its own batch and one update followed. Several models that train on
    one batch are no accumulation, and neither are several updates.
    """
    kept = select_steps(steps).kept
    if not kept.any():
        return 1
    train = train_steps(steps)
    fetches, backwards, updates = (
        read_integers(train, name)[kept] for name in ("fetches", "backwards", "optimizer_steps")
    )
    usual = int(np.median(backwards))
    accumulates = (backwards == fetches) & (updates <= 1)
    return usual if usual > 1 and accumulates.mean() > 0.5 else 1


def measure_throughput(steps: pa.Table) -> float | None:
    """Return samples per second over the steady steps; None if no batch had a known size."""
    kept = select_steps(steps).kept
    train = train_steps(steps)
    samples = int(read_integers(train, "samples", absent=0)[kept].sum())
    length_ns = int(read_integers(train, "duration_ns")[kept].sum())
    return samples * 1e9 / length_ns if samples and length_ns else None


@dataclass(frozen=True)
class Beyond:
    """Steps that a chart cuts off at the top: their numbers `step` and their times. `peak_ns` is the longest step
    that the chart shows.
    """

    peak_ns: int
    step: tuple[int, ...]
    duration_ns: tuple[int, ...]


def find_beyond(selection: StepSelection) -> Beyond | None:
    """Return the few steps that a chart of all steps must cut off at the top; None if one scale fits all."""
    durations = selection.duration_ns
    usual = float(np.percentile(durations, 95)) if len(durations) else 0.0
    if not usual or durations.max() <= FAR_RATIO * usual:
        return None
    cut = durations > CUT_RATIO * usual
    return Beyond(int(durations[~cut].max()), tuple(selection.step[cut].tolist()), tuple(durations[cut].tolist()))
