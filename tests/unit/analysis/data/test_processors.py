"""What other programs ask for, from what they got beside a run, and how long the run queued."""

from __future__ import annotations

import pytest

from collector.estimating.model import Customer, Processors, average_stretch
from profiler_server.analysis.data.loop import Cores, Queueing, estimate_others, measure_queueing
from profiler_server.facts.machine import HostLoad


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


def test_beside_idle_cores_others_ask_for_what_they_get() -> None:
    assert estimate_others(cores_of(8.0, load_of(1.0, 0.5)), 0) == pytest.approx(0.5)


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


def test_nothing_sampled_asks_for_nothing() -> None:
    assert estimate_others(cores_of(4.0, None), 2) == 0.0
    assert measure_queueing(cores_of(4.0, None), 2, recorded=1.3) == Queueing(1.3, 1.3)


def test_workers_and_the_step_queue_each_for_themselves() -> None:
    load = load_of(0.5, 0.0, workers=1.0, queued=0.1, workers_queued=0.5)
    beside, alone = (measure_queueing(cores_of(2.0, load), workers, recorded=1.0) for workers in (2, 0))
    assert (beside.batch, beside.step) == pytest.approx((1.5, 1.2))
    assert (alone.batch, alone.step) == pytest.approx((1.2, 1.2))
