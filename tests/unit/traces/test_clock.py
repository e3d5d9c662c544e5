from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.traces.kineto.clock import InexactTimesError, convert_numbers, convert_texts

NS = st.integers(0, 4_000_000_000 * 10**9)


def _spell(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


@given(st.lists(st.integers(0, (1 << 43) * 1000 - 1), min_size=1))
def test_doubles_below_the_limit_give_the_exact_time(times: list[int]) -> None:
    assert convert_numbers([float(_spell(time)) for time in times]).tolist() == times


@given(st.lists(NS, min_size=1))
def test_texts_give_the_exact_time(times: list[int]) -> None:
    assert convert_texts([msgspec.Raw(_spell(time).encode()) for time in times]).tolist() == times


@given(st.lists(st.integers(0, 4_000_000_000_000_000), min_size=1))
def test_whole_microseconds_give_the_exact_time(times: list[int]) -> None:
    assert convert_numbers(list(times)).tolist() == [time * 1000 for time in times]


def test_doubles_that_cannot_hold_the_time_are_refused() -> None:
    with pytest.raises(InexactTimesError):
        convert_numbers([1682725898236567.123])


@pytest.mark.parametrize("text", ["null", "x", "1e400", "NaN", ""])
def test_what_is_no_time_is_zero(text: str) -> None:
    assert convert_texts([msgspec.Raw(text.encode()), msgspec.Raw(b"2.5")]).tolist() == [0, 2500]
