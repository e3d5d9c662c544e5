"""The uncertainty of a predicted step: chance, errors of the simulator, and unknown sharing of processors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from collector.estimating.model import Job, LoopModel
from collector.estimating.simulation import simulate
from collector.format.intervals import Floats
from collector.format.steps import find_stall_limit
from profiler_server.diagnosis.limits.data import (
    CONTENTION_ERROR,
    DELAY_ERROR,
    MODEL_ERROR,
    OTHERS_ERROR,
    OTHERS_LEAST,
    SLOWDOWN_ERROR,
)
from profiler_server.facts.loading import MeasuredLoop

_BLOCKS = 12
_RESAMPLES = 400
_TAIL = 0.1
"""Share of resamples beyond each end of a range: four of five repetitions should fall inside."""
_DRAWN_STEPS = 120


@dataclass(frozen=True)
class Doubt:
    """Uncertainties of a prediction as half-widths in ns per step: `step_ns` of the mean step of another run after the
    change, and `gain_ns` of the gain. `chance_ns` is the part of `step_ns` due to chance alone.

    The gain is surer than the step: both simulated runs replay the same batches and steps, so chance largely cancels.
    """

    step_ns: float
    chance_ns: float
    gain_ns: float


def find_doubt(loop: MeasuredLoop, before: LoopModel, after: LoopModel) -> Doubt:
    """Return the uncertainty, from chance and model errors, of the step that a change of the model from `before` to
    `after` predicts. Blocks of steps are resampled, as steps depend on each other.
    """
    now, then = simulate(before), simulate(after)
    steps, gains = _resample(np.array(now.steps_ns), np.array(then.steps_ns))
    gain_ns = max(now.step_ns - then.step_ns, 0.0)
    smaller = min(gain_ns, then.step_ns) + max(before.extra_ns - after.extra_ns, 0.0)
    shared = find_sharing_doubt(before, after) * then.step_ns
    error = MODEL_ERROR + CONTENTION_ERROR * loop.contention_frac * _find_exposure(before)
    model = float(np.hypot(smaller * error, shared))
    unexplained = abs(loop.check - 1.0) * loop.regular_step_ns / loop.fetches
    ratio = min(1.0, then.step_ns / now.step_ns) if now.step_ns else 1.0
    # The unexplained part of the step shrinks with the step in the prediction. It may also vanish, or not shrink at
    # all.
    left, gained = unexplained * max(ratio, 1.0 - ratio) / 2, unexplained * (1.0 - ratio) / 2
    return Doubt(
        # Chance counts twice: in the steps that were recorded, and in those of the run to come.
        step_ns=loop.fetches * float(np.sqrt(2 * steps**2 + model**2 + left**2)),
        chance_ns=loop.fetches * float(np.sqrt(2)) * steps,
        gain_ns=loop.fetches * float(np.sqrt(gains**2 + model**2 + gained**2)),
    )


def _find_exposure(model: LoopModel) -> float:
    """Return the share of the work that needs a processor: of batches or of steps, whichever share is larger.

    The remaining work waits, so other programs cannot slow it.
    """
    parts = [sum(job.wall_ns * job.share for job in jobs) for jobs in (model.batches, model.steps)]
    walls = [sum(job.wall_ns for job in jobs) for jobs in (model.batches, model.steps)]
    return max(part / wall if wall else 0.0 for part, wall in zip(parts, walls, strict=True))


def find_sharing_doubt(before: LoopModel, after: LoopModel) -> float:
    """Return the relative uncertainty of a predicted step. It stems from how programs share processors.

    Each unknown figure is set to both ends of its range, in the run as it is and after the change. Its effect is the
    largest relative change of the ratio of both steps. The figures are independent: the result is the root of the sum
    of squared effects.
    """
    usual = _find_ratio(before, after)
    if not usual:
        return 0.0
    moves = [
        max(abs(_find_ratio(vary(before), vary(after)) / usual - 1.0) for vary in ends) for ends in _list_ends(before)
    ]
    return float(np.sqrt(sum(move**2 for move in moves)))


def _find_ratio(before: LoopModel, after: LoopModel) -> float:
    now = simulate(before, _DRAWN_STEPS).step_ns
    return simulate(after, _DRAWN_STEPS).step_ns / now if now else 0.0


_Vary = Callable[[LoopModel], LoopModel]


def _list_ends(model: LoopModel) -> Iterator[tuple[_Vary, ...]]:
    """Yield both ends of the range of each unknown figure: others' demand, delay for a processor, and slowdown by
    memory.
    """

    def ask(others: float) -> _Vary:
        return lambda changed: replace(changed, others=others)

    def share(**values: float) -> _Vary:
        return lambda changed: replace(changed, sharing=replace(changed.sharing, **values))

    if model.others:
        apart = max(OTHERS_ERROR * model.others, OTHERS_LEAST)
        yield ask(max(0.0, model.others - apart)), ask(model.others + apart)
    yield tuple(share(delay=model.sharing.delay * (1.0 + error)) for error in (-DELAY_ERROR, DELAY_ERROR))
    yield (share(slowdown=model.sharing.slowdown + SLOWDOWN_ERROR),)


def _resample(now: Floats, then: Floats) -> tuple[float, float]:
    """Return the half-widths of the mean step after the change and of the mean gain. They are 80 % intervals."""
    count = min(len(now), len(then))
    if count < _BLOCKS:
        return 0.0, 0.0
    gains = _average_blocks(now[:count] - then[:count])
    # Some changes remove stalls, so stalls are no noise of the step.
    steps = _average_blocks(np.minimum(then[:count], find_stall_limit(then[:count])))
    chosen = np.random.default_rng(0).integers(0, _BLOCKS, (_RESAMPLES, _BLOCKS))
    return _half_width(steps[chosen].mean(axis=1)), _half_width(gains[chosen].mean(axis=1))


def _average_blocks(values: Floats) -> Floats:
    return np.array([block.mean() for block in np.array_split(values, _BLOCKS)])


def _half_width(means: Floats) -> float:
    low, high = np.quantile(means, (_TAIL, 1.0 - _TAIL))
    return float(high - low) / 2


def predict_without_loading(loop: MeasuredLoop, model: LoopModel) -> float:
    """Return the mean step in ns if batches cost nothing. No change to the loading of batches can be faster."""
    return predict_step(loop, replace(model, batches=(Job(0.0, 0.0),), workers=0))


def predict_step(loop: MeasuredLoop, changed: LoopModel) -> float:
    """Return the mean step in ns after a change to the model. Time that the simulator does not explain shrinks in
    proportion.

    If the model does not reproduce the run, or if no batch was recorded, a change of the steps alone subtracts only the
    time that it removes.
    """
    now = loop.model
    keeps_loading = replace(changed, steps=now.steps, left=now.left, extra_ns=now.extra_ns) == now
    if not (loop.trusted and now.batches) and keeps_loading:
        own_ns, now_ns = (sum(step.wall_ns for step in model.steps) for model in (changed, now))
        saved_frac = 1.0 - own_ns / now_ns if now_ns else 0.0
        return loop.regular_step_ns - loop.own_ns * saved_frac + changed.extra_ns
    measured = loop.regular_step_ns / loop.fetches
    before, after = loop.check * measured, simulate(changed).step_ns
    left = (measured - before) * min(1.0, after / before) if before > 0 else measured - before
    return loop.fetches * (after + left) + changed.extra_ns
