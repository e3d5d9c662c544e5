"""A waterfall leads from one total to the other, and its axis hides no change."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_server.figures.waterfall import Fall, build_waterfall, find_base_ns, list_levels


def falls_of(*changes_ns: float) -> list[Fall]:
    return [Fall(f"part {i}", change, abs(change) / 4, "", i % 2 == 0) for i, change in enumerate(changes_ns)]


@given(st.floats(1e3, 1e12), st.lists(st.floats(-0.1, 0.5), min_size=1, max_size=8))
def test_every_level_lies_above_the_axis_and_the_last_is_the_end(start_ns: float, shares: list[float]) -> None:
    falls = falls_of(*(share * start_ns for share in shares))
    levels = list_levels(start_ns, falls)
    assert levels[-1] == pytest.approx(start_ns + sum(fall.change_ns for fall in falls))
    assert 0 <= find_base_ns(start_ns, falls) < min(levels)


def test_small_changes_move_the_axis_and_large_ones_do_not() -> None:
    assert find_base_ns(243e6, falls_of(21e6, -9e6, -3e6)) > 200e6
    assert find_base_ns(64e6, falls_of(95e6)) == 0.0


def test_the_figure_is_one_that_plotly_knows() -> None:
    figure: dict[str, Any] = build_waterfall(243e6, 252e6, falls_of(21e6, -9e6, -3e6), ("A", "<b>B</b>", "step"))
    go.Figure(figure)
    totals, parts, _ = figure["data"]
    assert [y + b for y, b in zip(totals["y"], totals["base"], strict=True)] == pytest.approx([243, 252])
    assert parts["base"] == pytest.approx([243, 264, 255])
    assert figure["layout"]["xaxis"]["ticktext"][-1] == "&lt;b&gt;B&lt;/b&gt;"


@pytest.mark.parametrize("changes_ns", [(21e6, -9e6, -3e6), (-30e6, 2e6), (1e6, -1e6)])
def test_labels_stand_above_bars_and_whiskers_and_the_axis_holds_both(changes_ns: tuple[float, ...]) -> None:
    falls = [Fall(f"part {change}", change, 8e6, "+x ms", False) for change in changes_ns]
    figure: dict[str, Any] = build_waterfall(243e6, 243e6 + sum(changes_ns), falls, ("A", "B", "step"))
    _, parts, labels = figure["data"]
    low, high = figure["layout"]["yaxis"]["range"]
    for base, change, noise, place in zip(
        parts["base"], parts["y"], parts["error_y"]["array"], labels["y"], strict=True
    ):
        assert place >= max(base, base + change + noise) - 1e-9
        assert low < base + change - noise
        assert place < high
    assert labels["text"] == ["+x ms"] * len(falls)
    assert "text" not in parts
