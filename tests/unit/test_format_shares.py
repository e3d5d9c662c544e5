"""Shares that are shown add up to the whole, whatever their number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_server.format import (
    choose_time_unit,
    format_change,
    format_number_of,
    format_phase_shares,
    format_share,
    format_shares,
    shorten_middle,
)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=20).filter(any))
def test_shown_shares_add_up(values: list[int]) -> None:
    whole = sum(values)
    shown = [float(text.removesuffix(" %")) for text in format_shares([value / whole for value in values])]
    assert sum(shown) == pytest.approx(100.0, abs=1e-6)
    assert all(abs(text - 100 * value / whole) <= 0.1 + 1e-9 for text, value in zip(shown, values, strict=True))


def test_no_parts_have_no_shares() -> None:
    assert format_shares([]) == ()
    assert format_shares([0.0, 0.0]) == ("0.0 %", "0.0 %")


@pytest.mark.parametrize(("peak_ns", "unit"), [(0, "ms"), (3, "ns"), (5e3, "µs"), (64e6, "ms"), (2e9, "s")])
def test_an_axis_has_the_unit_of_its_peak(peak_ns: float, unit: str) -> None:
    assert choose_time_unit(peak_ns)[1] == unit


@pytest.mark.parametrize(
    ("count", "noun", "text"), [(1, "step", "1 step"), (2, "batch", "2 batches"), (1200, "step", "1,200 steps")]
)
def test_a_noun_follows_its_count(count: int, noun: str, text: str) -> None:
    assert format_number_of(count, noun) == text


@given(st.lists(st.integers(0, 10**12), min_size=3, max_size=8).filter(sum), st.integers(0, 2))
def test_a_firm_part_reads_as_it_does_alone_and_the_whole_stays_near_100(values: list[int], firm: int) -> None:
    shares = [value / sum(values) for value in values]
    shown = format_shares(shares, (firm,))
    assert shown[firm] == f"{100 * shares[firm]:.1f} %"
    assert abs(sum(float(text.removesuffix(" %")) for text in shown) - 100.0) <= 0.1 + 1e-9


def test_no_sign_that_turns_text_round_is_shown() -> None:
    assert shorten_middle("a\u202egnp.exe\u202c\u2066b") == "agnp.exeb"
    assert shorten_middle("שלום") == "שלום"


def test_a_share_that_a_verdict_quotes_reads_the_same_in_the_table() -> None:
    shown = format_phase_shares({"data_wait": 0.0, "forward": 0.40625, "communication": 0.18755, "tail": 0.4062})
    assert shown["communication"] == format_share(0.18755)


@pytest.mark.parametrize(
    ("change", "text"), [(0.03, "+3.0 %"), (-0.186, "−18.6 %"), (0.0, "0.0 %"), (-0.0004, "0.0 %"), (0.0004, "0.0 %")]
)
def test_a_change_has_the_sign_that_its_figure_shows(change: float, text: str) -> None:
    assert format_change(change) == text
