"""Sets of time against sets of whole nanoseconds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.format.intervals import EMPTY, Intervals, integrate_capped, unite

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(-2, 15)), max_size=15)


def _unite(rows: list[tuple[int, int]]) -> Intervals:
    starts = np.array([start for start, _ in rows], np.int64)
    return unite(starts, starts + np.array([length for _, length in rows], np.int64))


def _moments(rows: list[tuple[int, int]]) -> set[int]:
    return {moment for start, length in rows for moment in range(start, start + length)}


def _list_moments(found: Intervals) -> set[int]:
    return {m for start, end in zip(found.starts.tolist(), found.ends.tolist(), strict=True) for m in range(start, end)}


@given(pairs)
def test_union_covers_what_its_intervals_cover(rows: list[tuple[int, int]]) -> None:
    found = _unite(rows)
    assert _list_moments(found) == _moments(rows)
    assert found.length_ns == len(_moments(rows))
    assert (found.starts[1:] > found.ends[:-1]).all()


@given(pairs, pairs)
def test_sets_combine_as_sets_of_moments(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    a, b = _unite(first), _unite(second)
    assert _list_moments(a | b) == _moments(first) | _moments(second)
    assert _list_moments(a & b) == _moments(first) & _moments(second)
    assert _list_moments(a - b) == _moments(first) - _moments(second)


@given(pairs)
def test_integral_caps_the_sum_of_what_is_open(rows: list[tuple[int, int]]) -> None:
    solid = [(start, length) for start, length in rows if length > 0]
    starts = np.array([start for start, _ in solid], np.int64)
    ends = starts + np.array([length for _, length in solid], np.int64)
    weights = np.full(len(solid), 0.4)
    expected = sum(
        min(0.4 * sum(start <= moment < start + length for start, length in solid), 1.0) for moment in range(80)
    )
    assert integrate_capped(starts, ends, weights, 1.0) == pytest.approx(expected)


def test_nothing_has_no_length_and_no_integral() -> None:
    nothing = np.empty(0, np.int64)
    assert (len(EMPTY.starts), len(EMPTY.ends), EMPTY.length_ns) == (0, 0, 0)
    assert integrate_capped(nothing, nothing, np.empty(0), 1.0) == 0.0


def test_a_hole_is_cut_out_of_the_longest_time_there_is() -> None:
    far = 2**62 - 1  # 146 years of nanoseconds
    whole, hole = _unite([(-far, 2 * far)]), _unite([(10, 5)])
    found = whole - hole
    assert (found.starts.tolist(), found.ends.tolist()) == ([-far, 15], [10, far])


@given(pairs)
def test_a_set_says_which_times_it_holds_and_how_much_of_it_lies_before_them(rows: list[tuple[int, int]]) -> None:
    found, moments, times = _unite(rows), _moments(rows), range(-3, 80)
    assert found.contains(np.array(times)).tolist() == [time in moments for time in times]
    before = [sum(moment < time for moment in moments) for time in times]
    assert found.measure_before(np.array(times)).tolist() == before
