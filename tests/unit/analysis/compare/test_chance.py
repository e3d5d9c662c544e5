"""Many parts tested at once: what is called slower is that more surely than the luckiest of so many."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from collector.format.intervals import Floats
from profiler_server.analysis.compare.comparison import Difference
from profiler_server.analysis.compare.run_statistics import ALPHA, compare_means, compare_stretches, correct_chances


def test_the_chance_and_the_noise_of_a_difference_are_those_of_welch() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        a, b = random.normal(10, 1, 20), random.normal(10.5, 3, 12)
        found, expected = compare_means(a, b), stats.ttest_ind(b, a, equal_var=False)
        interval = expected.confidence_interval()
        assert found.p == pytest.approx(expected.pvalue, rel=1e-9)
        assert found.noise == pytest.approx((interval.high - interval.low) / 2, rel=1e-9)
        assert (abs(found.change) > (found.noise or 0.0)) == (expected.pvalue < ALPHA)


def test_what_never_scatters_differs_for_sure_or_not_at_all_and_one_value_tells_nothing() -> None:
    same = np.full(5, 3.0)
    assert (compare_means(same, same).p, compare_means(same, same + 1).p) == (1.0, 0.0)
    assert compare_means(same, same + 1).noise == 0.0
    assert compare_means(same[:1], same).p is None


def test_holm_multiplies_the_smallest_chance_by_all_tests_and_the_next_by_one_less() -> None:
    assert correct_chances([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert correct_chances([0.5, 0.9]) == [1.0, 1.0]
    assert correct_chances([0.02]) == [0.02]
    assert correct_chances([]) == []


def test_among_many_equal_parts_hardly_ever_is_one_called_changed() -> None:
    random = np.random.default_rng(1)

    def draw() -> Floats:
        return np.array(random.normal(10, 1, 20))

    chances = [[compare_means(draw(), draw()).p or 0.0 for _ in range(8)] for _ in range(300)]
    assert np.mean([min(each) <= ALPHA for each in chances]) > 0.2
    assert np.mean([min(correct_chances(each)) <= ALPHA for each in chances]) <= 0.08


@pytest.mark.parametrize(("correlation", "count"), [(0.3, 40), (0.6, 40), (0.6, 200)])
def test_short_runs_whose_steps_resemble_each_other_are_not_called_changed(correlation: float, count: int) -> None:
    random = np.random.default_rng(2)

    def draw() -> Floats:
        values = random.normal(size=count + 50)
        for place in range(1, len(values)):
            values[place] += correlation * values[place - 1]
        return np.array(10 + values[50:])

    chances = [[compare_stretches(draw(), draw()).p or 0.0 for _ in range(8)] for _ in range(200)]
    assert np.mean([min(correct_chances(each)) <= ALPHA for each in chances]) <= 0.1


def test_the_change_of_stretches_of_unequal_lengths_is_that_of_all_values() -> None:
    a, b = np.arange(23.0), np.arange(31.0)
    assert compare_stretches(a, b).change == pytest.approx(4.0)
    assert compare_stretches(a[:0], b).p is None


@pytest.mark.parametrize(
    ("p", "corrected", "meaning"),
    [
        (0.001, 0.008, "slower"),
        (0.02, 0.16, "maybe slower"),
        (0.2, 1.0, "noise"),
        (None, None, "too few steps"),
    ],
)
def test_a_change_is_sure_unsure_or_noise(p: float | None, corrected: float | None, meaning: str) -> None:
    assert Difference("forward", 10.0, 11.0, 0.5, p, corrected).meaning == meaning
    assert Difference("forward", 11.0, 10.0, 0.5, p, corrected).meaning == meaning.replace("slower", "faster")


def test_a_change_that_reads_as_none_is_noise_however_sure_it_is() -> None:
    tiny = Difference("forward", 1e7, 1e7 + 1.0, 0.0, 0.0, 0.0)
    assert (tiny.shown_ns, tiny.meaning) == (0.0, "noise")
