"""Bars of a strip: placed in percent, labelled where there is room, spoken as a sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_server.figures import build_strip, build_ticks

MS = 1e6


def test_bars_lie_end_to_end_and_fill_the_strip() -> None:
    strip = build_strip(
        [("data_wait", 0, 46 * MS), ("forward", 46 * MS, 92 * MS), ("tail", 138 * MS, 62 * MS)], 200 * MS
    )
    assert [(bar.x, bar.width) for bar in strip.bars] == [
        ("0.000%", "23.000%"),
        ("23.000%", "46.000%"),
        ("69.000%", "31.000%"),
    ]
    assert [bar.color for bar in strip.bars] == ["data", "compute", "host"]
    assert strip.sentence == "200 ms: Data wait 46.0 ms, Forward 92.0 ms, Tail 62.0 ms."


def test_of_a_phase_in_pieces_the_longest_is_marked_with_the_time_of_all() -> None:
    strip = build_strip(
        [("data_wait", 0, 60 * MS), ("h2d", 60 * MS, 1 * MS), ("data_wait", 61 * MS, 139 * MS)], 200 * MS
    )
    assert [bar.text for bar in strip.bars] == ["", "", "Data wait 199 ms"]


def test_a_narrow_bar_has_no_text_but_a_title() -> None:
    (bar,) = build_strip([("data_wait", 10 * MS, 1 * MS)], 200 * MS).bars
    assert bar.text == ""
    assert bar.title == "Data wait: starts at 10.0 ms, takes 1.00 ms (0.5 %)"


def test_a_strip_of_nothing_says_so() -> None:
    strip = build_strip([], 0)
    assert (strip.bars, strip.ticks, strip.sentence) == ((), (), "Nothing.")


@given(st.floats(1.0, 1e13))
def test_ticks_are_few_and_inside(whole_ns: float) -> None:
    ticks = build_ticks(whole_ns)
    assert 4 <= len(ticks) <= 11
    assert all(0 <= float(tick.x.rstrip("%")) <= 100 for tick in ticks)


@pytest.mark.parametrize(("whole_ns", "last"), [(252 * MS, "250 ms"), (1e9, "1 s"), (880_000, "800 µs")])
def test_ticks_are_round(whole_ns: float, last: str) -> None:
    assert build_ticks(whole_ns)[-1].text == last
