"""How threads share processors, and the simulated DataLoader: cases computed by hand, and what must hold for every loader."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.estimating.model import (
    MOST_OTHERS,
    Customer,
    Job,
    LoopModel,
    Processors,
    Receive,
    Sharing,
    find_stretch,
    list_others,
)
from collector.estimating.simulation import _Contended, _Stretches, find_workers, simulate

ALWAYS = Customer(1.0)


@pytest.mark.parametrize(
    ("cores", "beside", "stretch"),
    [
        (1.0, 0, 1.0),
        (1.0, 1, 2.0),
        (1.0, 3, 4.0),
        (2.0, 1, 1.0),
        (2.0, 3, 2.0),
        (1.5, 2, 2.0),
    ],
)
def test_threads_that_never_wait_take_turns(cores: float, beside: int, stretch: float) -> None:
    assert find_stretch(Processors(cores), [ALWAYS] * beside) == pytest.approx(stretch)


def test_a_thread_that_waits_half_of_its_time_is_met_at_a_processor_in_half_of_the_time() -> None:
    # One core: it computes for one and waits for one. Beside it, work of any length takes half as long again.
    assert find_stretch(Processors(1.0), [Customer(0.5)]) == pytest.approx(1.5)


def test_two_that_wait_half_of_their_time_hold_up_each_other_too() -> None:
    # Weights of none, one, two that can run on one core: 1/4, 1/2, and 1/4 twice, as each then goes on at half speed.
    expected = (0.25 * 1 + 0.5 * 2 + 0.5 * 3) / (0.25 + 0.5 + 0.5)
    assert find_stretch(Processors(1.0), [Customer(0.5)] * 2) == pytest.approx(expected)


def test_who_only_waits_holds_up_nobody() -> None:
    assert find_stretch(Processors(1.0), [Customer(0.0)] * 40) == 1.0


def test_a_step_of_several_threads_counts_as_so_many() -> None:
    assert find_stretch(Processors(2.0), [Customer(1.0, threads=2.0)]) == pytest.approx(1.5)
    assert find_stretch(Processors(2.0), [ALWAYS], threads=2.0) == pytest.approx(1.5)
    assert find_stretch(Processors(2.0), [Customer(1.0, threads=1.5)]) == pytest.approx(1.25)


def test_work_on_all_processors_is_slower_by_the_slowdown() -> None:
    assert find_stretch(Processors(4.0, slowdown=0.3), [ALWAYS] * 3) == pytest.approx(1.3)
    assert find_stretch(Processors(4.0, slowdown=0.3), [ALWAYS]) == pytest.approx(1.1)


@pytest.mark.parametrize("others", [1e300, math.inf])
def test_however_much_others_ask_for_so_many_threads_are_counted(others: float) -> None:
    assert list_others(others) == (ALWAYS,) * MOST_OTHERS
    assert math.isfinite(find_stretch(Processors(0.01), list_others(others)))


def test_what_is_no_number_of_cores_asks_for_nothing() -> None:
    assert list_others(math.nan) == list_others(-1.0) == ()
    assert list_others(1.5) == (ALWAYS, Customer(0.5))


customers = st.lists(st.builds(Customer, st.floats(0.0, 1.0), st.floats(1.0, 4.0)), max_size=8)


@given(customers, st.floats(0.5, 16.0), st.floats(1.0, 4.0), st.floats(0.0, 1.0))
def test_others_never_speed_up_work_and_more_cores_never_slow_it(
    beside: list[Customer], cores: float, threads: float, slowdown: float
) -> None:
    few = find_stretch(Processors(cores, slowdown=slowdown), beside, threads)
    assert few >= 1.0 - 1e-9
    more = [*beside, ALWAYS]
    assert find_stretch(Processors(cores, slowdown=slowdown), more, threads) >= few - 1e-9
    if not slowdown:
        assert find_stretch(Processors(2 * cores), beside, 1.0) <= find_stretch(Processors(cores), beside, 1.0) + 1e-9


@given(st.floats(0.05, 1.0), st.floats(0.05, 1.0))
def test_two_that_share_a_core_get_no_more_than_that_core(one: float, two: float) -> None:
    host = Processors(1.0)
    used = [own / (1.0 - own + own * find_stretch(host, [Customer(other)])) for own, other in ((one, two), (two, one))]
    assert sum(used) <= 1.0 + 1e-9
    assert sum(used) >= max(one, two) - 1e-9  # nobody waits while the core is idle


MANY = 1_000.0


def model_of(batch: float = 300.0, step: float = 60.0, **changes: object) -> LoopModel:
    base = LoopModel(batches=(Job(batch, 0.0),), steps=(Job(step, 0.0),), workers=2, cores=MANY)
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("workers", "step_ns", "wait_ns"),
    [
        (0, 360.0, 300.0),  # one after the other
        (1, 300.0, 240.0),  # the worker is the slower of the two
        (2, 150.0, 90.0),
        (3, 100.0, 40.0),
        (5, 60.0, 0.0),  # the step is
        (8, 60.0, 0.0),
    ],
)
def test_constant_times_give_the_slower_of_step_and_share_of_a_batch(
    workers: int, step_ns: float, wait_ns: float
) -> None:
    found = simulate(model_of(workers=workers), 300)
    assert found.step_ns == pytest.approx(step_ns, rel=0.01)
    assert found.wait_ns == pytest.approx(wait_ns, abs=1.0)


def test_one_slow_batch_in_two_is_hidden_by_prefetching() -> None:
    batches = (Job(20.0, 0.0), Job(100.0, 0.0))
    shallow = simulate(model_of(batches=batches, workers=1, prefetch=1, step=70.0), 300)
    deep = simulate(model_of(batches=batches, workers=1, prefetch=4, step=70.0), 300)
    # With one batch ahead, the slow one starts when the fast one is taken: 100, then 70.
    assert shallow.step_ns == pytest.approx(85.0, rel=0.01)
    assert deep.step_ns == pytest.approx(70.0, rel=0.01)


def test_order_holds_up_batches_that_are_done() -> None:
    batches = tuple(Job(400.0 if n % 8 == 0 else 20.0, 0.0) for n in range(40))
    ordered = simulate(model_of(batches=batches, workers=2, prefetch=2, step=60.0), 240)
    free = simulate(model_of(batches=batches, workers=2, prefetch=2, step=60.0, in_order=False), 240)
    assert free.step_ns < 0.9 * ordered.step_ns
    assert free.step_ns == pytest.approx(60.0, rel=0.06)


def test_processor_work_is_bounded_by_the_cores() -> None:
    busy = LoopModel(batches=(Job(300.0, 1.0),), steps=(Job(60.0, 0.0),), workers=8, cores=2.0)
    assert simulate(busy, 200).step_ns == pytest.approx(150.0, rel=0.03)
    # One more that runs takes a ninth of what the cores give: the eight workers share the rest.
    shared = simulate(replace(busy, others=1.0), 200).step_ns
    assert shared == pytest.approx(300.0 / (2.0 * 8 / 9), rel=0.03)


def test_in_process_loading_counts_the_load_of_others() -> None:
    alone = LoopModel(batches=(Job(100.0, 1.0),), steps=(Job(50.0, 0.0),), workers=0, cores=1.0)
    assert simulate(alone, 50).step_ns == pytest.approx(150.0)
    assert simulate(replace(alone, others=1.0), 50).step_ns == pytest.approx(250.0)


def test_a_loop_without_a_loader_never_waits() -> None:
    found = simulate(LoopModel(batches=(), steps=(Job(10.0, 0.0), Job(30.0, 0.0)), workers=0))
    assert (found.step_ns, found.wait_ns) == (20.0, 0.0)


def test_the_smallest_number_of_workers_near_the_best_is_found() -> None:
    assert find_workers(model_of()) == 5
    assert find_workers(model_of(batch=59.0)) == 1
    assert find_workers(LoopModel(batches=(Job(300.0, 1.0),), steps=(Job(60.0, 0.0),), workers=1, cores=2.0)) == 2


times = st.lists(st.floats(1.0, 500.0), min_size=1, max_size=12)


def replay(batches: list[float], steps: list[float], workers: int, prefetch: int) -> LoopModel:
    """Return a loop of these times, with cores for all."""
    jobs, own = (tuple(Job(time, 0.0) for time in times) for times in (batches, steps))
    return LoopModel(jobs, own, workers, prefetch, cores=MANY)


@settings(max_examples=60)
@given(batches=times, steps=times, workers=st.integers(1, 6), prefetch=st.integers(1, 4))
def test_simulated_step_lies_between_its_bounds(
    batches: list[float], steps: list[float], workers: int, prefetch: int
) -> None:
    model = replay(batches, steps, workers, prefetch)
    found = simulate(model, 240)
    serial = simulate(replace(model, workers=0), 240).step_ns
    most_own = max(steps)
    assert found.step_ns >= min(steps) - 1e-6
    assert found.step_ns <= max(most_own + max(batches), serial) + 1e-6
    assert found.wait_ns >= 0.0


@settings(max_examples=60)
@given(batch=st.floats(1.0, 500.0), step=st.floats(1.0, 500.0), workers=st.integers(0, 7))
def test_another_worker_never_slows_a_loader_that_has_cores(batch: float, step: float, workers: int) -> None:
    fewer = simulate(model_of(batch, step, workers=workers), 120).step_ns
    more = simulate(model_of(batch, step, workers=workers + 1), 120).step_ns
    assert more <= fewer * 1.02


@pytest.mark.parametrize("others", [1e300, float("inf"), float("nan")])
def test_the_simulation_ends_whatever_others_are_said_to_take(others: float) -> None:
    job = Job(1e6, 1.0)
    model = LoopModel((job,), (job,), workers=2, cores=2.0, others=others)
    assert len(simulate(model, 30).steps_ns) == 20


def test_a_step_and_a_worker_on_one_core_take_turns() -> None:
    model = LoopModel((Job(100.0, 1.0),), (Job(60.0, 1.0),), workers=1, cores=1.0)
    assert simulate(model, 200).step_ns == pytest.approx(160.0, rel=0.01)
    assert simulate(replace(model, cores=2.0), 200).step_ns == pytest.approx(100.0, rel=0.01)


def test_workers_that_wait_for_storage_need_no_core() -> None:
    model = LoopModel((Job(300.0, 0.003),), (Job(50.0, 1.0),), workers=6, cores=2.0)
    assert simulate(model, 200).step_ns == pytest.approx(50.0, rel=0.02)


def test_the_delay_that_was_measured_stretches_what_waits_for_a_processor() -> None:
    model = LoopModel((Job(100.0, 1.0),), (Job(50.0, 0.0),), workers=0, cores=1.0, others=1.0)
    assert simulate(replace(model, sharing=Sharing(delay=0.5)), 50).step_ns == pytest.approx(150.0 + 50.0)


needs = st.floats(0.0, 1.0)


def mix_of(batch: float, step: float, needs: tuple[float, float], workers: int, cores: float) -> LoopModel:
    return LoopModel((Job(batch, needs[0]),), (Job(step, needs[1]),), workers, cores=cores)


@settings(max_examples=40)
@given(
    batch=st.floats(5.0, 300.0),
    step=st.floats(5.0, 300.0),
    needs=st.tuples(needs, needs),
    workers=st.integers(0, 6),
    cores=st.sampled_from([1.0, 2.0, 4.0]),
)
def test_no_more_work_is_done_than_there_are_processors_and_workers(
    batch: float, step: float, needs: tuple[float, float], workers: int, cores: float
) -> None:
    # The first steps find batches that were made ahead of them: 12 of 400 at most.
    found = simulate(mix_of(batch, step, needs, workers, cores), 400).step_ns
    assert found >= step * 0.999
    assert found >= (batch * needs[0] + step * needs[1]) / cores * 0.96
    assert found >= (batch / workers * 0.96 if workers else batch + step) * 0.999


@settings(max_examples=40)
@given(
    batch=st.floats(5.0, 300.0),
    step=st.floats(5.0, 300.0),
    needs=st.tuples(needs, needs),
    workers=st.integers(0, 6),
    others=st.floats(0.0, 3.0),
)
def test_more_cores_or_fewer_other_programs_never_make_a_step_longer(
    batch: float, step: float, needs: tuple[float, float], workers: int, others: float
) -> None:
    busy = replace(mix_of(batch, step, needs, workers, 1.0), others=others)
    found = simulate(busy, 150).step_ns
    assert simulate(replace(busy, cores=2.0), 150).step_ns <= found * 1.01
    assert simulate(replace(busy, others=others / 2), 150).step_ns <= found * 1.01


def test_taking_a_batch_over_is_part_of_every_step_that_workers_feed() -> None:
    receive = Receive(7.0, cores=0.0)
    fed = model_of(batch=20.0, step=60.0, receive=receive)
    assert simulate(fed, 200).step_ns == pytest.approx(67.0, rel=0.01)
    assert simulate(fed, 200).wait_ns == pytest.approx(7.0, rel=0.01)
    assert simulate(replace(fed, workers=0), 200).step_ns == pytest.approx(80.0)
    # While the step waits for the worker, what it takes over is late, but no more.
    assert simulate(replace(fed, batches=(Job(300.0, 0.0),)), 200).step_ns == pytest.approx(150.0, rel=0.03)


def test_a_worker_that_makes_the_next_batch_hands_over_the_last_one_more_slowly() -> None:
    # One worker makes batches of 100 without a pause, so the training thread waits for it, and then for its interpreter.
    receive = Receive(1.0, 8.0, cores=0.0)
    busy = model_of(batch=100.0, step=20.0, workers=1, receive=receive)
    assert simulate(busy, 200).wait_ns == pytest.approx(80.0, rel=0.02)
    ahead = replace(busy, workers=8, prefetch=4)  # all of them are done long before
    assert simulate(ahead, 200).step_ns == pytest.approx(21.0, rel=0.05)
    # Half way: each of two workers still makes its next batch when the last is taken over.
    assert simulate(replace(busy, steps=(Job(41.0, 0.0),), workers=2), 200).step_ns == pytest.approx(50.0, rel=0.03)


@settings(max_examples=30)
@given(
    batches=times,
    steps=times,
    workers=st.integers(1, 4),
    prefetch=st.integers(1, 3),
    took=st.just(0.0) | st.floats(0.5, 20.0),
)
def test_both_ways_to_simulate_agree_on_taking_batches_over(
    batches: list[float], steps: list[float], workers: int, prefetch: int, took: float
) -> None:
    model = replace(replay(batches, steps, workers, prefetch), receive=Receive(took, 2 * took, cores=0.0))
    quick, general = simulate(model, 90), _Contended(model, 90, _Stretches(model)).run()
    assert general.step_ns == pytest.approx(quick.step_ns, rel=1e-3, abs=0.1)
