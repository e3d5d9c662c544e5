"""What is measured of a loader, and the doubt about what is simulated from that."""

from __future__ import annotations

FED_FRAC = 0.1
"""A loader feeds the steps when it gave a batch to at least this share of them; one used now and then does not."""

LATE_RATIO, LATE_NS = 5.0, 1_000_000.0
"""A request of which it was not seen whether its batch was ready lacked it when it took so many times as long as usual,
and that much longer."""

PROBED_STEPS = 4
"""Fewer steps say too little of their mean."""

PROBED_FRAC = 0.03
"""The range is no narrower than this part of the step: other steps of the run, on another minute of the host, differ."""

QUEUES_FROM = 1.05
"""Computing that takes so many times its processor time has queued for a processor."""

LEAST_CORES = 0.02
"""What used fewer cores than this says nothing of how long it queued."""

ROUNDED_CORES = 0.15
"""Samples of some seconds are as far off: a program that never waits is not taken for two because of that."""

LEAST_BATCHES = 20
"""So many batches on each side of a comparison."""

CROWDED_RATIO = 1.4
"""Workers that read at once must differ by this factor before the rates of few and of many are compared."""

LEAST_FETCHES = 20
"""Of fewer batches whose making was seen nothing is told of when they were made."""

RECEIVED_FETCHES, FEW_FETCHES = 10, 3
"""Receiving is measured on so many batches; where fewer were taken over from idle workers, so few of those will do."""

SOON_NS = 1_000_000
"""A worker that begins its next batch so soon after it sent one computes while that is taken over."""

STAGE_CPU_NS = 50_000.0
"""A stage that took less processor time for a batch does not tell how long it queued for a processor."""

MODEL_ERROR = 0.08
"""Assumed error of a prediction, of the gain or of the step left, whichever is smaller: nine in ten errors on the grid of
loops (docs/accuracy.md) are below 10 %, and half of them below 3 %."""

CONTENTION_ERROR = 0.25
"""How much of that a host adds, per share of its cores that other programs take: their load may differ next time.
Assumed, not measured."""

OTHERS_ERROR, OTHERS_LEAST = 0.3, 0.05
"""What others ask for may differ next time by this share, and by so many cores of it at least where there are any."""

DELAY_ERROR = 0.25
"""Half width of the delay for a processor over the computed one: our choice, near what runs of the grid showed."""

SLOWDOWN_ERROR = 0.1
"""By so much all processors together may be slower than one alone where the run has not shown it."""

FED_STEP_FRAC = 0.03
"""A change leaves no wait for data to speak of when its step is within this of one whose batches are made in no time."""

SLOWER_BATCHES = 1.1
"""The batches of another run may take so many times as long: half of the errors on the grid of loops are far below."""

LEAST_KEPT = 0.3
"""The most by which recorded times are shortened so that the model reproduces the run: to this share."""

NEAR_FRAC = 0.02
"""The model reproduces the run when its step is within this of the measured one; else it is fitted."""

DELAYS = (0.5, 1.5)
"""What the delay for a processor may be of the computed one."""

USUAL_RECEIVE_NS = 1_000_000.0
"""A batch of one to three tensors takes 0.6 to 1.9 ms to take over from a worker (docs/accuracy.md)."""
