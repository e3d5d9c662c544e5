"""Why ranks come late: what the last one did longer than the others, and causes that show in how the steps vary."""

from __future__ import annotations

import numpy as np

from collector.format.intervals import Floats, Mask
from collector.format.phases import PHASE_NAMES
from profiler_server.analysis.ranks import limits
from profiler_server.analysis.ranks.together import COMMUNICATION, StepsTogether
from profiler_server.facts.job import BETWEEN, COLLECTING, STARVED, Cause, Garbage


def find_causes(together: StepsTogether, late: Mask) -> tuple[Cause, ...]:
    """Return what was longer than the median of the ranks where `late` (ranks, steps) says so, the longest first."""
    count = int(late.sum())
    if not count:
        return ()
    parts = together.parts_ns - np.median(together.parts_ns, axis=1, keepdims=True)
    excess = {name: float(parts[at][late].mean()) for at, name in enumerate(PHASE_NAMES) if at != COMMUNICATION}
    excess[BETWEEN] = float((together.between_ns - np.median(together.between_ns, axis=0))[late].mean())
    longer = sum(value for value in excess.values() if value > 0)
    if longer <= 0:
        return ()
    collecting = together.collecting_ns - np.median(together.collecting_ns, axis=0, keepdims=True)
    collected = float(collecting[late].mean())
    if collected >= limits.BEHIND_PHASES_FRAC * longer:
        return (Cause(COLLECTING, collected, min(collected / longer, 1.0)),)
    causes = [
        Cause(name, value, value / longer)
        for name, value in excess.items()
        if value >= limits.LEAST_CAUSE_FRAC * longer
    ]
    return tuple(sorted(causes, key=lambda cause: -cause.excess_ns))


def find_starvation(excess_ns: float, starved_ns: float, others_ns: float) -> tuple[Cause, ...]:
    """Return that a rank is late because it had no processor; nothing where that explains too little.

    `starved_ns` is how long it was ready to run in a step and had none, `others_ns` the median of the others.
    """
    longer = starved_ns - others_ns
    if excess_ns <= 0 or longer < limits.BEHIND_PHASES_FRAC * excess_ns:
        return ()
    return (Cause(STARVED, longer, min(longer / excess_ns, 1.0)),)


def find_uneven_work(together: StepsTogether) -> float | None:
    """Return how forward and backward vary together over ranks and steps, None where they hardly vary.

    What is always longer on a rank, or longer on all ranks in a step, is taken off first: that is a slow device, or a
    slow step, and no unlike input.
    """
    if len(together.step) < limits.LEAST_UNEVEN_STEPS:
        return None
    forward, backward = (_take_off(together.parts_ns[PHASE_NAMES.index(name)]) for name in ("forward", "backward"))
    varies = float((forward + backward).std())
    if varies < limits.UNEVEN_FRAC * float(together.step_ns.mean()) or not forward.std() or not backward.std():
        return None
    found = float(np.corrcoef(forward.ravel(), backward.ravel())[0, 1])
    return found if found >= limits.UNEVEN_CORRELATION else None


def weigh_garbage(together: StepsTogether) -> Garbage | None:
    """Return what is gained if all ranks collect garbage at the same steps, None where that is little.

    A pause p that meets each of n ranks with the chance q in a step costs p(1 - (1 - q)^n); if all have it at once, pq.
    """
    ranks, steps = together.collecting_ns.shape
    step_ns = float(together.step_ns.mean()) if steps else 0.0
    pauses = together.collecting_ns >= limits.LEAST_PAUSE_FRAC * step_ns
    if not steps or not pauses.any():
        return None
    pause, chance = float(together.collecting_ns[pauses].mean()), float(pauses.mean())
    hit = float(pauses.any(axis=0).mean())
    most = float(pauses.mean(axis=1).max())
    if (
        hit < limits.APART_PAUSES * chance or most > limits.ONE_RANK_FRAC * hit
    ):  # they collect together already, or one rank alone does
        return None
    gain = pause * (1.0 - (1.0 - chance) ** ranks - chance)
    return Garbage(pause, chance, gain) if gain >= limits.LEAST_GAIN_FRAC * step_ns else None


def _take_off(values: Floats) -> Floats:
    found = values - np.median(values, axis=1, keepdims=True)
    left: Floats = found - np.median(found, axis=0, keepdims=True)
    return left
