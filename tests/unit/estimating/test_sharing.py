"""How threads share processors: cases computed by hand, and what must hold for any of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.estimating.model import MOST_OTHERS, Customer, Processors, find_stretch, list_others

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
