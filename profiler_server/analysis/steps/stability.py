"""How steady the steps are: percentiles of every phase, jitter, trend, and percentiles along the run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from collector.format.intervals import Floats, Ints
from collector.format.phases import PHASE_NAMES
from collector.format.steps import FEWEST_RANKED, read_integers, select_steps, summarize_durations, train_steps
from profiler_server.diagnosis.limits.steps import CARRIED_FRAC, CARRIED_STEPS, TREND_STEPS

WINDOW_MIN_STEPS = FEWEST_RANKED
MOST_WINDOWS = 60


@dataclass(frozen=True)
class PhaseSpread:
    """One phase over the steps that the average covers; `carrier` is the step that carries most of it, if one does."""

    name: str
    steps: int
    mean_ns: float
    share_frac: float
    p50_ns: float
    p95_ns: float | None
    carrier: int | None = None


@dataclass(frozen=True)
class Stability:
    """How much the steps vary and grow; None where there are too few of them to tell.

    `jitter_frac` is the standard deviation over the mean; `trend_frac` is the median step of the last quarter against
    that of the first, minus 1.
    """

    jitter_frac: float | None
    trend_frac: float | None


@dataclass(frozen=True)
class Band:
    """Percentiles of the step along the run, one value per run of steps; `step` is the middle of each.

    Empty for fewer steps than one such run has.
    """

    step: Ints
    p50_ns: Floats
    p95_ns: Floats
    window_steps: int


def summarize_spread(steps: pa.Table) -> tuple[PhaseSpread, ...]:
    """Return one row per phase, in the order of a step; empty if no step is averaged. Means sum to the mean step."""
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
    """Return jitter and trend of the steps that the average covers."""
    selection = select_steps(steps)
    durations = selection.duration_ns[selection.kept]
    if len(durations) < 2:
        return Stability(None, None)
    jitter = float(durations.std() / durations.mean()) if durations.mean() else None
    if len(durations) < TREND_STEPS:
        return Stability(jitter, None)
    quarter = len(durations) // 4
    first, last = float(np.median(durations[:quarter])), float(np.median(durations[-quarter:]))
    return Stability(jitter, last / first - 1.0 if first else None)


def trace_band(step: Ints, duration_ns: Ints) -> Band:
    """Return the p50 and p95 of runs of equal length, at most sixty of them, each of twenty steps or more."""
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
