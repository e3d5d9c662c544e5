"""How wide the range of a prediction is, and what makes it wider."""

from __future__ import annotations

import dataclasses

import pytest

from collector.estimating.model import Job, LoopModel
from collector.estimating.simulation import simulate
from profiler_server.analysis.data.prediction import (
    find_doubt,
    find_sharing_doubt,
    predict_step,
    predict_without_loading,
)
from profiler_server.facts.loading import MeasuredLoop

MS = 1e6
STARVED = LoopModel(
    batches=tuple(Job(ms * MS, 0.0) for ms in (40, 60, 50, 90, 30)), steps=(Job(20 * MS, 0.0),), workers=1, cores=4.0
)


def measured(model: LoopModel, check: float = 1.0, contention_frac: float = 0.0) -> MeasuredLoop:
    return MeasuredLoop(
        model, 1.0, simulate(model).step_ns / check, model.steps[0].wall_ns, check, False, contention_frac
    )


def halved(model: LoopModel) -> LoopModel:
    return dataclasses.replace(model, batches=tuple(Job(job.wall_ns / 2, 0.0) for job in model.batches))


def more_workers(model: LoopModel) -> LoopModel:
    return dataclasses.replace(model, workers=4)


def test_a_change_of_nothing_is_not_in_doubt_but_for_chance() -> None:
    doubt = find_doubt(measured(STARVED), STARVED, STARVED)
    assert doubt.gain_ns == 0.0
    assert doubt.step_ns == pytest.approx(doubt.chance_ns)


def test_chance_cancels_in_the_gain_but_not_in_the_step() -> None:
    uneven = dataclasses.replace(STARVED, batches=tuple(Job((10 + 9 * (n % 23)) * MS, 0.0) for n in range(230)))
    doubt = find_doubt(measured(uneven), uneven, dataclasses.replace(uneven, extra_ns=-MS))
    assert doubt.chance_ns > MS
    assert doubt.gain_ns < doubt.chance_ns


@pytest.mark.parametrize(("check", "others"), [(0.8, 0.0), (1.0, 3.5)])
def test_a_poor_check_and_a_busy_host_widen_both(check: float, others: float) -> None:
    computing = dataclasses.replace(STARVED, batches=tuple(Job(job.wall_ns, 1.0) for job in STARVED.batches))
    good = find_doubt(measured(computing), computing, more_workers(computing))
    busy = dataclasses.replace(computing, others=others)
    poor = find_doubt(measured(busy, check), busy, more_workers(busy))
    assert poor.step_ns > good.step_ns
    assert poor.gain_ns > good.gain_ns


def test_other_programs_do_not_make_what_only_waits_less_sure() -> None:
    busy = dataclasses.replace(STARVED, others=3.5)
    assert find_sharing_doubt(STARVED, more_workers(STARVED)) == pytest.approx(0.0, abs=1e-3)
    assert find_sharing_doubt(busy, more_workers(busy)) == pytest.approx(0.0, abs=1e-3)


def test_no_change_of_the_loading_beats_no_loading() -> None:
    assert predict_without_loading(measured(STARVED), STARVED) == pytest.approx(20 * MS)


def test_a_run_of_which_nothing_is_simulated_keeps_its_measured_step() -> None:
    loop = dataclasses.replace(measured(STARVED), check=0.0)
    after = simulate(more_workers(STARVED)).step_ns
    assert predict_step(loop, more_workers(STARVED)) == pytest.approx(loop.regular_step_ns + after)
