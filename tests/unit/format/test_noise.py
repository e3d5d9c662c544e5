"""The interval of a mean, against the distribution and against values whose scatter is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from collector.format.intervals import Floats
from collector.format.noise import count_independent, measure_noise, quantile_of_t


@pytest.mark.parametrize(("freedom", "within"), [(1, 1e-9), (2, 1e-9), (3, 5e-3), (4, 1e-3), (19, 1e-4), (1000, 1e-6)])
@pytest.mark.parametrize("share", [0.9, 0.975])
def test_the_quantile_is_that_of_students_t(freedom: int, within: float, share: float) -> None:
    assert quantile_of_t(freedom, share) == pytest.approx(stats.t.ppf(share, freedom), rel=within)


def test_fewer_than_two_values_have_no_noise() -> None:
    assert measure_noise(np.array([])) is None
    assert measure_noise(np.array([5.0])) is None
    assert measure_noise(np.array([5.0, 5.0])) == 0


def test_the_interval_is_that_of_twenty_stretches() -> None:
    values = np.repeat(np.tile([1.0, 3.0], 10), 5) + np.tile(np.arange(5.0), 20)
    means = values.reshape(20, 5).mean(axis=1)
    expected = stats.t.ppf(0.975, 19) * stats.sem(means)
    assert measure_noise(values) == pytest.approx(expected, rel=1e-4)


def resemble(correlation: float, count: int) -> Floats:
    """Return values of which each takes over so much of the one before (AR(1))."""
    random, values = np.random.default_rng(3), [0.0]
    for shock in random.normal(size=count):
        values.append(correlation * values[-1] + shock)
    return np.array(values[1:])


@pytest.mark.parametrize("correlation", [0.3, 0.6, 0.8])
def test_values_that_resemble_each_other_count_as_fewer(correlation: float) -> None:
    count = 20_000
    expected = count * (1 - correlation) / (1 + correlation)
    assert count_independent(resemble(correlation, count)) == pytest.approx(expected, rel=0.1)


def test_values_that_do_not_and_few_ones_count_each() -> None:
    assert count_independent(np.tile([1.0, 2.0], 10)) == 20
    assert count_independent(np.full(20, 5.0)) == 20
    assert count_independent(np.arange(9.0)) == 9
    assert count_independent(np.arange(20.0)) == 2


def test_what_the_mean_takes_from_the_estimate_is_added_to_it() -> None:
    values = np.array([1.0, 1.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 2.0, 2.0])
    scatter = values - 1.5
    estimate = float(scatter[1:] @ scatter[:-1] / (scatter @ scatter))
    alike = estimate + (1 + 3 * estimate) / 10
    assert 0 < alike < 0.9
    assert count_independent(values) == pytest.approx(10 * (1 - alike) / (1 + alike))


def test_few_values_are_a_stretch_each() -> None:
    values = np.array([1.0, 2.0, 4.0])
    assert measure_noise(values) == pytest.approx(stats.t.ppf(0.975, 2) * stats.sem(values), rel=1e-6)


@pytest.mark.parametrize("share", [0.9, 0.975, 0.999])
def test_every_term_of_the_series_is_the_published_one(share: float) -> None:
    """What four terms leave out falls with the fifth power: by 32 for twice the degrees of freedom, by less if one is wrong."""
    left = [quantile_of_t(freedom, share) - stats.t.ppf(share, freedom) for freedom in (40, 80)]
    assert abs(left[0] / left[1]) > 28
