"""Limits for measuring a loader, and the uncertainty of simulations."""

from __future__ import annotations

FED_FRAC = 0.1
"""A loader feeds the steps if it gave a batch to at least this share of them."""

LATE_RATIO, LATE_NS = 5.0, 1_000_000.0
"""Where readiness was not recorded, a request lacked its batch if it took this many times the usual time, and this many
ns longer."""

QUEUES_FROM = 1.05
"""Computing has queued for a processor if it takes this many times its processor time."""

LEAST_CORES = 0.02
"""Cores in use below which the queueing time is not estimated."""

ROUNDED_CORES = 0.15
"""Error of samples over some seconds, in cores, so that a program that never waits does not count as two programs."""

LEAST_BATCHES = 20
"""Least batches on each side of a comparison."""

CROWDED_RATIO = 1.4
"""Ratio by which the number of reading workers must differ before the rates of few and of many are compared."""

LEAST_FETCHES = 20
"""Batches with recorded work below which their timing is not judged."""

RECEIVED_FETCHES, FEW_FETCHES = 10, 3
"""Batches needed for the mean time of receiving, and for the median if fewer come from idle workers."""

SOON_NS = 1_000_000
"""A worker that begins its next batch within this time of sending one computes while that batch is received."""

STAGE_CPU_NS = 50_000.0
"""Processor time of a stage per batch below which its queueing time is not estimated."""

MODEL_ERROR = 0.08
"""Assumed error of a prediction, as a share of the gain or of the remaining step, whichever is smaller. On the grid of
loops (docs/concepts/accuracy.md) nine in ten errors are below 10 %, and half are below 3 %."""

CONTENTION_ERROR = 0.25
"""Error added per share of the host's cores that other programs take, because their load may differ next time. Assumed,
not measured."""

OTHERS_ERROR, OTHERS_LEAST = 0.3, 0.05
"""The load of other programs may differ next time by this share, and by at least this many cores if there is any."""

DELAY_ERROR = 0.25
"""Error of the computed delay for a processor, as a share of it: our choice, close to runs of the grid."""

SLOWDOWN_ERROR = 0.1
"""Error of the slowdown of processors that all compute at once, as a share of the time of one alone: assumed, not
measured."""

LEAST_KEPT = 0.3
"""Least factor by which recorded times are shortened so that the model reproduces the run."""

NEAR_FRAC = 0.02
"""The model reproduces the run if its step is within this share of the measured one; otherwise the model is fitted."""

DELAYS = (0.5, 1.5)
"""Range of the delay for a processor, as multiples of the computed delay."""

USUAL_RECEIVE_NS = 1_000_000.0
"""Time to take over a batch of one to three tensors from a worker: 0.6 to 1.9 ms were measured (docs/concepts/accuracy.md)."""
