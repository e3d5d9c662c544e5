"""The statistics of the gate against scipy's own tests, and against all orders that the lot could have drawn."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from collector.format.intervals import Floats
from profiler_server.analysis.compare.comparison import Difference
from profiler_server.analysis.compare.run_statistics import (
    ALPHA,
    MOST_WHOLE,
    bootstrap_medians,
    choose_block,
    compare_lists,
    compare_means,
    compare_pairs,
    compare_stretches,
    compare_with_known_scatter,
    correct_chances,
    count_pairs,
    find_changed_parts,
    find_detectable,
    judge_pairs,
)
from tests.support.must import must


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


def test_short_runs_whose_steps_resemble_each_other_are_not_called_changed() -> None:
    random = np.random.default_rng(2)

    def draw() -> Floats:
        values = random.normal(size=90)
        for place in range(1, len(values)):
            values[place] += 0.6 * values[place - 1]
        return np.array(10 + values[50:])

    chances = [[compare_stretches(draw(), draw()).p or 0.0 for _ in range(8)] for _ in range(100)]
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


BASE = np.array([100.0, 102.0, 99.0, 101.0, 100.5])
NEW = np.array([104.0, 103.0, 107.0, 105.5, 104.5, 106.0, 103.5])


def test_two_lists_are_compared_by_welchs_t_on_logarithms() -> None:
    found = compare_lists(BASE, NEW)
    expected = stats.ttest_ind(np.log(NEW), np.log(BASE), equal_var=False, alternative="greater")
    interval = stats.ttest_ind(np.log(NEW), np.log(BASE), equal_var=False).confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert (found.low, found.high) == pytest.approx(tuple(np.expm1(interval)), rel=1e-9)
    assert found.change == pytest.approx(np.expm1(np.log(NEW).mean() - np.log(BASE).mean()))


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


def test_a_run_that_others_of_the_program_reach_is_not_slower_than_a_quick_base() -> None:
    found = compare_with_known_scatter(95.0, 101.5, BASE)
    assert stats.t.sf(np.log(101.5 / 95.0) / (np.log(BASE).std(ddof=1) * np.sqrt(2)), 4) < 0.05
    assert found.p == 0.05
    assert found.least == pytest.approx(101.5 / 102.0 - 1)
    assert compare_with_known_scatter(95.0, 102.5, BASE).least > 0


def test_runs_that_do_not_scatter_are_what_they_are() -> None:
    same = np.full(3, 100.0)
    slower = compare_lists(same, np.full(3, 110.0))
    assert (slower.p, slower.detectable) == (0.0, 0.0)
    assert slower.low == slower.high == pytest.approx(0.1)
    assert compare_lists(same, same).p == 1.0


@pytest.mark.parametrize("pairs", [3, 5, 10])
def test_a_slowdown_that_is_called_detectable_is_found_four_times_in_five(pairs: int) -> None:
    random = np.random.default_rng(pairs)
    base = BASE.mean() * np.exp(0.01 * random.standard_normal(pairs))
    found = compare_pairs(base, BASE.mean() * np.exp(0.01 * random.standard_normal(pairs)))
    error = np.log1p(found.scatter) * np.sqrt(2 / pairs)
    limit = stats.t.ppf(0.95, pairs - 1)
    assert stats.nct.sf(limit, pairs - 1, np.log1p(found.detectable) / error) == pytest.approx(0.8, abs=1e-4)


def test_the_scatter_is_that_of_one_run() -> None:
    random = np.random.default_rng(0)
    base, new = (np.exp(0.02 * random.standard_normal(4000)) for _ in range(2))
    for found in (compare_pairs(base, new), compare_lists(base, new), compare_with_known_scatter(1.0, 1.0, base)):
        assert found.scatter == pytest.approx(0.02, rel=0.05)


def test_what_a_change_lies_between_are_the_bounds_of_two_one_sided_tests() -> None:
    found = compare_lists(BASE, NEW)
    below, above = (
        stats.ttest_ind(np.log(NEW), np.log(BASE), equal_var=False, alternative=side).confidence_interval(0.95)
        for side in ("less", "greater")
    )
    assert found.most == pytest.approx(np.expm1(below.high), rel=1e-9)
    assert found.least == pytest.approx(np.expm1(above.low), rel=1e-9)


def list_runs(**parts: Floats) -> list[dict[str, float]]:
    """Each run with the parts that it has a number for."""
    count = max(map(len, parts.values()))
    return [{name: float(values[run]) for name, values in parts.items() if run < len(values)} for run in range(count)]


@pytest.mark.parametrize(("base", "new"), [(BASE, NEW), (NEW, BASE), (BASE[:2] - 90, NEW), (NEW, BASE[:2] + 90)])
def test_a_part_is_compared_by_welchs_t(base: Floats, new: Floats) -> None:
    (found,) = find_changed_parts(list_runs(forward=base), list_runs(forward=new))
    assert found.p == pytest.approx(stats.ttest_ind(base, new, equal_var=False).pvalue, rel=1e-9)
    assert found.change_ns == pytest.approx(new.mean() - base.mean())


def test_parts_that_changed_are_listed_by_the_size_of_their_change() -> None:
    same = BASE.tolist()
    base = list_runs(forward=BASE, backward=BASE, tail=BASE, optimizer=np.array(same))
    new = list_runs(forward=BASE + 10, backward=BASE - 30, tail=BASE + 20, optimizer=np.array(same[::-1]))
    found = find_changed_parts(base, new)
    assert [(part.name, round(part.change_ns)) for part in found] == [("backward", -30), ("tail", 20), ("forward", 10)]


@pytest.mark.parametrize(("others", "is_clear"), [(0, True), (1, True), (2, False)])
def test_the_more_parts_are_compared_the_clearer_a_change_must_be(others: int, is_clear: bool) -> None:
    change = 2.05  # p = 0.02 alone, below 0.05 / 2 but not below 0.05 / 3
    assert 0.05 / 3 < stats.ttest_ind(BASE, BASE + change, equal_var=False).pvalue < 0.05 / 2
    quiet = {f"other {number}": BASE for number in range(others)}
    found = find_changed_parts(list_runs(forward=BASE, **quiet), list_runs(forward=BASE + change, **quiet))
    assert [part.name for part in found] == (["forward"] if is_clear else [])


def test_a_part_that_the_runs_before_lack_took_no_time_in_them() -> None:
    always = {"forward": np.full(3, 5.0)}
    (found,) = find_changed_parts(list_runs(**always), list_runs(**always, checkpoint=np.full(3, 7.0)))
    assert (found.name, found.change_ns, found.p) == ("checkpoint", 7.0, 0.0)
    (gone,) = find_changed_parts(list_runs(**always, checkpoint=np.full(3, 7.0)), list_runs(**always))
    assert (gone.name, gone.change_ns, gone.p) == ("checkpoint", -7.0, 0.0)


SQUARE_WAVE = np.tile([0.0, 0, 0, 0, 1, 1, 1, 1], 25)


@pytest.mark.parametrize(
    ("values", "length"),
    [
        (np.array([1.0, 2, 3]), 1),
        (np.full(50, 7.0), 1),
        (np.tile([0.0, 1.0], 50), 1),  # neighbours differ: no block is needed
        (np.array([0.0, 0, 1, 1]), 2),
        (SQUARE_WAVE, 11),  # φ = 25.25 / 50 = 0.505, (1.01 / 0.744975)² · 200 = 367.6, 1.5 · 7.16 = 10.7
        (np.arange(100.0), 50),  # at most half of the steps
        (np.arange(1000.0), 323),  # φ counts as 0.99: (1.98 / 0.0199)² · 1000 = 9.9e6, 1.5 · 214.7 = 322.1
    ],
)
def test_the_more_neighbours_are_alike_the_longer_is_a_block(values: Floats, length: int) -> None:
    assert choose_block(values) == length


@pytest.mark.parametrize(("length", "values"), [(1, np.tile([100.0, 110.0, 90.0], 21)), (11, SQUARE_WAVE + 100)])
def test_medians_are_drawn_from_whole_blocks_of_steps(length: int, values: Floats) -> None:
    random = np.random.default_rng(3)
    count = -(-len(values) // length)
    medians = [
        np.median(np.concatenate([values[start : start + length] for start in starts])[: len(values)])
        for starts in random.integers(0, len(values) - length + 1, size=(500, count))
    ]
    expected = np.percentile(np.log(medians) - np.log(80.0), (2.5, 97.5))
    found = bootstrap_medians(np.full(10, 80.0), values, draws=500, seed=3)
    assert found == pytest.approx(tuple(np.expm1(expected)), rel=1e-12)


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


@pytest.mark.parametrize("pairs", [5, 6])
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


@pytest.mark.parametrize("pairs", [5, 7, MOST_WHOLE, MOST_WHOLE + 8])
def test_the_bounds_of_a_slowdown_and_of_a_speedup_mirror_each_other(pairs: int) -> None:
    new = np.exp(0.01 * np.random.default_rng(1).standard_normal(pairs))
    found, mirrored = judge_pairs(np.ones(pairs), new), judge_pairs(new, np.ones(pairs))
    assert (1 + found.least) * (1 + mirrored.most) == pytest.approx(1.0)
    assert found.low <= found.least <= found.change <= found.most <= found.high


@pytest.mark.parametrize("pairs", [3, 5, 6])
def test_what_is_called_detectable_is_found_four_times_in_five(pairs: int) -> None:
    random = np.random.default_rng(0)
    logs = 0.01 * (random.standard_normal((600, pairs)) + find_detectable(pairs))
    assert np.mean([judge_changes(row) for row in logs]) == pytest.approx(0.8, abs=0.06)


def test_the_number_of_pairs_is_the_first_that_finds_the_slowdown() -> None:
    pairs = must(count_pairs(0.02, 0.05))
    told = np.log1p(0.05) / np.log1p(0.02) / np.sqrt(2)
    assert find_detectable(pairs) <= told < find_detectable(pairs - 1)
    assert count_pairs(0.0, 0.05) == 3
    assert count_pairs(0.5, 0.05) is None
