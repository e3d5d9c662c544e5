"""Bounds from pairs whose order was drawn by lot: exact whatever the scatter, and as sharp as t where it is normal."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from collector.format.intervals import Floats
from profiler_server.analysis.compare.run_statistics import (
    MOST_WHOLE,
    compare_pairs,
    count_pairs,
    find_detectable,
    judge_pairs,
)

CHANGES = np.array([0.021, 0.034, 0.008, 0.055, 0.027, 0.040, -0.003])


def judge_changes(logs: Floats) -> bool:
    return judge_pairs(np.ones(len(logs)), np.exp(logs)).least > 0


def flip_signs(logs: Floats) -> Floats:
    """Each way to choose the signs, as a row."""
    return np.array(list(product((1.0, -1.0), repeat=len(logs)))) * logs


def test_of_five_pairs_the_bounds_are_the_smallest_and_the_largest_change() -> None:
    found = judge_pairs(np.ones(5), 1.0 + CHANGES[:5])
    assert (found.least, found.most) == pytest.approx((0.008, 0.055))
    assert found.p == 1 / 32
    assert found.change == pytest.approx(stats.gmean(1.0 + CHANGES[:5]) - 1.0)


@pytest.mark.parametrize("pairs", [5, 6, 7])
def test_the_chance_is_the_share_of_signs_that_make_as_much_of_a_slowdown(pairs: int) -> None:
    logs = np.log1p(CHANGES[-pairs:])
    ways = flip_signs(logs).mean(axis=1)
    found = judge_pairs(np.ones(pairs), np.exp(logs))
    assert found.p == np.mean(ways >= logs.mean() - 1e-15)
    assert (found.least > 0) == (found.p <= 0.05)


@pytest.mark.parametrize("pairs", [5, 6, 8])
@pytest.mark.parametrize("shape", ["normal", "cauchy", "two levels", "drift"])
def test_of_all_orders_of_runs_at_most_one_in_twenty_calls_a_program_slower_than_itself(pairs: int, shape: str) -> None:
    """Whatever the runs took: the lot alone decides which of each pair was new, and never the same in all."""
    random = np.random.default_rng(pairs)
    drift = 3.0 * np.arange(2 * pairs) + random.standard_normal(2 * pairs)
    levels = {"normal": random.standard_normal(2 * pairs), "cauchy": random.standard_cauchy(2 * pairs)}
    levels |= {
        "two levels": (random.random(2 * pairs) < 0.5) + 0.01 * random.standard_normal(2 * pairs),
        "drift": drift,
    }
    changes = 0.01 * (levels[shape][1::2] - levels[shape][::2])
    ways = [signs * changes for signs in flip_signs(np.ones(pairs)) if len(set(signs)) > 1]
    assert np.mean([judge_changes(logs) for logs in ways]) <= 0.05


@pytest.mark.parametrize("pairs", [3, 4])
def test_three_or_four_pairs_are_judged_by_t(pairs: int) -> None:
    new = np.exp(0.01 * np.random.default_rng(0).standard_normal(pairs))
    assert judge_pairs(np.ones(pairs), new) == compare_pairs(np.ones(pairs), new)


@pytest.mark.parametrize("pairs", [5, 7, MOST_WHOLE, MOST_WHOLE + 8])
def test_the_bounds_of_a_slowdown_and_of_a_speedup_mirror_each_other(pairs: int) -> None:
    new = np.exp(0.01 * np.random.default_rng(1).standard_normal(pairs))
    found, mirrored = judge_pairs(np.ones(pairs), new), judge_pairs(new, np.ones(pairs))
    assert (1 + found.least) * (1 + mirrored.most) == pytest.approx(1.0)
    assert found.low <= found.least <= found.change <= found.most <= found.high


@pytest.mark.parametrize("pairs", [3, 5, 6, 8])
def test_what_is_called_detectable_is_found_four_times_in_five(pairs: int) -> None:
    random = np.random.default_rng(0)
    logs = 0.01 * (random.standard_normal((1500, pairs)) + find_detectable(pairs))
    assert np.mean([judge_changes(row) for row in logs]) == pytest.approx(0.8, abs=0.04)


def test_of_many_pairs_the_bounds_are_near_those_of_t() -> None:
    new = np.exp(0.02 + 0.01 * np.random.default_rng(5).standard_normal(30))
    found, by_t = judge_pairs(np.ones(30), new), compare_pairs(np.ones(30), new)
    assert (found.least, found.most) == pytest.approx((by_t.least, by_t.most), abs=0.0005)
    assert found.p <= 1 / 2000


def test_the_number_of_pairs_is_the_first_that_finds_the_slowdown() -> None:
    pairs = count_pairs(0.02, 0.05)
    assert pairs is not None
    told = np.log1p(0.05) / np.log1p(0.02) / np.sqrt(2)
    assert find_detectable(pairs) <= told < find_detectable(pairs - 1)
    assert count_pairs(0.0, 0.05) == 3
    assert count_pairs(0.5, 0.05) is None
