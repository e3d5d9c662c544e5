"""How wide the range of a prediction is, and what other programs ask for."""

from __future__ import annotations

import dataclasses

import pytest

from collector.estimating.model import Customer, Job, LoopModel, Processors, average_stretch
from collector.estimating.simulation import simulate
from profiler_server.analysis.data.loop import Cores, estimate_others, measure_queueing
from profiler_server.analysis.data.prediction import (
    find_doubt,
    find_sharing_doubt,
    predict_step,
)
from profiler_server.facts.loading import MeasuredLoop
from profiler_server.facts.machine import HostLoad

MS = 1e6
STARVED = LoopModel(
    batches=tuple(Job(ms * MS, 0.0) for ms in (40, 60, 50, 90, 30)), steps=(Job(20 * MS, 0.0),), workers=1, cores=4.0
)


def measured(model: LoopModel, check: float = 1.0, contention_frac: float = 0.0) -> MeasuredLoop:
    return MeasuredLoop(
        model, 1.0, simulate(model).step_ns / check, model.steps[0].wall_ns, check, False, contention_frac
    )


def more_workers(model: LoopModel) -> LoopModel:
    return dataclasses.replace(model, workers=4)


def test_doubt_is_only_chance_where_nothing_changes_and_cancels_in_the_gain() -> None:
    doubt = find_doubt(measured(STARVED), STARVED, STARVED)
    assert doubt.gain_ns == 0.0
    assert doubt.step_ns == pytest.approx(doubt.chance_ns)
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


def test_a_run_of_which_nothing_is_simulated_keeps_its_measured_step() -> None:
    loop = dataclasses.replace(measured(STARVED), check=0.0)
    after = simulate(more_workers(STARVED)).step_ns
    assert predict_step(loop, more_workers(STARVED)) == pytest.approx(loop.regular_step_ns + after)


def load_of(
    process: float, others: float, workers: float = 0.0, queued: float = 0.0, workers_queued: float | None = None
) -> HostLoad:
    return HostLoad(
        process,
        workers,
        process + workers + others,
        others,
        queued_frac=queued,
        workers_queued_frac=workers_queued,
        others_anywhere=others,
    )


def cores_of(usable: float, load: HostLoad | None) -> Cores:
    return Cores(usable, 1.0, True, load)


def test_a_program_that_never_waits_is_one_program_however_little_it_gets() -> None:
    # One core: the run computes for 60 % of the time and queues for the rest, so the other program gets 40 %.
    found = estimate_others(cores_of(1.0, load_of(0.5, 0.5, queued=0.5)), 0)
    assert found == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("asked", [0.2, 0.5, 0.8])
def test_what_a_program_asks_for_is_found_from_what_it_got(asked: float) -> None:
    runnable = Customer(0.7)
    got = asked / (1.0 - asked + asked * average_stretch(Processors(1.0), [runnable]))
    found = estimate_others(cores_of(1.0, load_of(0.5, got, queued=0.2)), 0)
    assert found == pytest.approx(asked, rel=0.05)


def test_programs_on_cores_that_the_run_may_not_use_count_only_if_it_queues() -> None:
    quiet = HostLoad(0.5, 0.0, 1.5, 0.0, stretch=1.0, queued_frac=0.0, others_anywhere=1.0)
    queues = HostLoad(0.5, 0.0, 1.5, 0.0, stretch=1.8, queued_frac=0.4, others_anywhere=1.0)
    assert estimate_others(cores_of(1.0, quiet), 0) == 0.0
    assert estimate_others(cores_of(1.0, queues), 0) > 0.5


def test_workers_and_the_step_queue_each_for_themselves() -> None:
    load = load_of(0.5, 0.0, workers=1.0, queued=0.1, workers_queued=0.5)
    beside, alone = (measure_queueing(cores_of(2.0, load), workers, recorded=1.0) for workers in (2, 0))
    assert beside == pytest.approx((1.5, 1.2))
    assert alone == pytest.approx((1.2, 1.2))
