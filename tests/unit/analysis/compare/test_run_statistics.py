"""The statistics of the gate against scipy's own tests."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from profiler_server.analysis.compare.run_statistics import compare_lists, compare_pairs, compare_with_known_scatter

BASE = np.array([100.0, 102.0, 99.0, 101.0, 100.5])
NEW = np.array([104.0, 103.0, 107.0, 105.5, 104.5, 106.0, 103.5])


def test_two_lists_are_compared_by_welchs_t_on_logarithms() -> None:
    found = compare_lists(BASE, NEW)
    expected = stats.ttest_ind(np.log(NEW), np.log(BASE), equal_var=False, alternative="greater")
    interval = stats.ttest_ind(np.log(NEW), np.log(BASE), equal_var=False).confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert (found.low, found.high) == pytest.approx(tuple(np.expm1(interval)), rel=1e-9)
    assert found.change == pytest.approx(np.expm1(np.log(NEW).mean() - np.log(BASE).mean()))


def test_lists_of_unequal_scatter_have_their_own_degrees_of_freedom() -> None:
    wild = np.array([90.0, 120.0, 101.0])
    for base, new in ((BASE, wild), (wild, BASE)):
        expected = stats.ttest_ind(np.log(new), np.log(base), equal_var=False, alternative="greater")
        assert compare_lists(base, new).p == pytest.approx(expected.pvalue, rel=1e-9)


def test_pairs_are_compared_by_t_on_the_logarithms_of_their_ratios() -> None:
    new = BASE * np.array([1.03, 1.01, 1.04, 1.02, 1.05])
    found = compare_pairs(BASE, new)
    expected = stats.ttest_1samp(np.log(new / BASE), 0.0, alternative="greater")
    interval = stats.ttest_1samp(np.log(new / BASE), 0.0).confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert (found.low, found.high) == pytest.approx(tuple(np.expm1(interval)), rel=1e-9)


def test_a_pair_is_judged_by_the_scatter_of_like_runs() -> None:
    found = compare_with_known_scatter(100.0, 104.0, BASE)
    t = np.log(1.04) / (np.log(BASE).std(ddof=1) * np.sqrt(2))
    assert found.p == pytest.approx(stats.t.sf(t, 4), rel=1e-9)
    assert found.change == pytest.approx(0.04)


def test_runs_that_do_not_scatter_are_what_they_are() -> None:
    same = np.full(3, 100.0)
    slower = compare_lists(same, np.full(3, 110.0))
    assert (slower.p, slower.detectable) == (0.0, 0.0)
    assert slower.low == slower.high == pytest.approx(0.1)
    assert compare_lists(same, same).p == 1.0
