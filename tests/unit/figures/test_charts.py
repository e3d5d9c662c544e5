"""Charts: valid by Plotly's own schema, small, true to their extremes, and safe with hostile names."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_server import figures
from profiler_server.figures import Axes, Line, Slice, Stack
from profiler_server.figures.charts import BINNED_BARS, DRAWN_POINTS
from profiler_server.format import format_share

MS = 1_000_000
STEPS = np.arange(1, 5001)
TIMES = (60 + 5 * np.sin(STEPS / 9)) * MS

EVERY_FIGURE = {
    "lines": figures.build_lines(
        STEPS,
        [Line(kind, "data", TIMES, kind) for kind in ("line", "area", "steps", "points", "dash")],
        Axes(x_range=(1, 5000), y_max=80.0),
    ),
    "stack": figures.build_stack(Stack(STEPS, {"gap": TIMES, "forward": TIMES}, labels={"gap": "Gap"})),
    "pie": figures.build_pie([Slice("matmul", 3.0, "3 ms"), Slice("other", 1.0, "1 ms", "idle")], "4 ms"),
    "bars": figures.build_bars([Slice("aten::mm", 3.0 * MS, "3 ms"), Slice("aten::add", 1.0 * MS, "1 ms")]),
    "depths": figures.build_depths(STEPS, STEPS % 5, 4),
    "nothing": figures.build_lines(np.array([]), [Line("none", "data", np.array([]))]),
    "no stack": figures.build_stack(Stack(np.array([]), {"gap": np.array([])})),
    "no pie": figures.build_pie([]),
    "no bars": figures.build_bars([]),
    "no depths": figures.build_depths(np.array([]), np.array([]), 0),
}


@pytest.mark.parametrize("name", EVERY_FIGURE)
def test_every_figure_follows_the_schema_of_plotly(name: str) -> None:
    figure = EVERY_FIGURE[name]
    assert go.Figure(figure).to_plotly_json()["data"] is not None
    assert json.loads(json.dumps(figure, allow_nan=False)) == figure


def test_a_long_series_is_drawn_with_few_points_and_keeps_its_extremes() -> None:
    times = np.full(1_000_000, 60.0)
    times[[17, 700_001]] = [1.0, 900.0]
    x, y = figures.decimate(np.arange(len(times)), times)
    assert len(y) <= DRAWN_POINTS
    assert (y.min(), y.max()) == (1.0, 900.0)
    assert {17, 700_001} <= set(x.tolist())


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=400), st.integers(2, 50))
def test_decimation_keeps_order_bounds_and_only_real_points(values: list[int], limit: int) -> None:
    x, y = figures.decimate(np.arange(len(values)), np.array(values), limit)
    assert len(x) <= max(limit, 2)
    assert (np.diff(x) > 0).all()
    assert [values[i] for i in x] == y.tolist()
    assert (y.min(), y.max()) == (min(values), max(values))


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=700))
def test_averaged_runs_keep_the_total(values: list[int]) -> None:
    means = figures.average_runs(np.array(values))
    size = figures.run_length(len(values))
    sizes = [len(values[i : i + size]) for i in range(0, len(values), size)]
    assert len(means) == len(sizes) <= BINNED_BARS
    assert float(means @ np.array(sizes)) == pytest.approx(sum(values), rel=1e-9)


def test_one_unit_per_axis() -> None:
    figure = figures.build_lines(STEPS, [Line("a", "data", TIMES), Line("b", "host", TIMES / 1e6)])
    assert figure["layout"]["yaxis"]["title"]["text"] == "time (ms)"
    assert max(figure["data"][1]["y"]) < 1e-3


def test_a_missing_value_is_a_gap_not_a_zero() -> None:
    figure = figures.build_lines(np.arange(3), [Line("a", "data", np.array([1.0, np.nan, 3.0]) * MS)])
    assert figure["data"][0]["y"] == [1.0, None, 3.0]


def test_zeros_of_a_queue_are_marked() -> None:
    empty = EVERY_FIGURE["depths"]["data"][2]
    assert empty["mode"] == "markers"
    assert set(empty["y"]) == {0.0}
    assert all(x % 5 == 0 for x in empty["x"])


def test_hostile_names_are_text_and_bounded() -> None:
    name = '<a href="javascript:alert(1)">' + "x" * 10_000
    for figure in (
        figures.build_pie([Slice(name, 1.0, name)], name),
        figures.build_bars([Slice(name, 1.0, name)]),
        figures.build_lines(STEPS, [Line(name, "data", TIMES)]),
        figures.build_stack(Stack(STEPS, {"gap": TIMES}, labels={"gap": name})),
    ):
        text = json.dumps({**figure, "data": [{**t, "x": [], "y": []} for t in figure["data"]]})
        assert "<a" not in text
        assert len(text) < 4000


@pytest.mark.parametrize(("theme", "ground"), [(0, "#ffffff"), (1, "#0d1117")])
def test_colors_stand_out_from_the_ground(theme: int, ground: str) -> None:
    weak = {name: _contrast(colors[theme], ground) for name, colors in figures.PALETTE.items()}
    assert {name: ratio for name, ratio in weak.items() if ratio < 3.0} == {}


@pytest.mark.parametrize("theme", [0, 1])
def test_colors_of_phases_are_apart_for_every_kind_of_sight(theme: int) -> None:
    solid = [c for name, c in figures.PALETTE.items() if name not in ("idle", "zero", "overlap")]
    near = [
        (a[theme], b[theme], sight)
        for a, b in itertools.combinations(solid, 2)
        for sight in _SIGHTS
        if _distance(a[theme], b[theme], sight) < 15
    ]
    assert near == []


_SIGHTS = {
    "normal": np.eye(3),
    "protan": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    "deutan": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    "tritan": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
}  # fmt: skip
"""Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB."""


def _linear(color: str) -> np.ndarray:
    assert re.fullmatch(r"#[0-9a-f]{6}", color)
    channels = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def _contrast(color: str, ground: str) -> float:
    weights = np.array([0.2126, 0.7152, 0.0722])
    low, high = sorted(float(weights @ _linear(c)) for c in (color, ground))
    return (high + 0.05) / (low + 0.05)


def _distance(a: str, b: str, sight: str) -> float:
    return float(np.linalg.norm(_lab(_SIGHTS[sight] @ _linear(a)) - _lab(_SIGHTS[sight] @ _linear(b))))


def _lab(linear: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(linear, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def test_a_pie_has_the_shares_that_a_table_of_the_same_parts_has() -> None:
    parts = [499.96, 146.0, 127.0, 85.54, 78.0, 63.5]
    pie = figures.build_pie([Slice(str(part), part, "") for part in parts])["data"][0]
    assert pie["texttemplate"] == [format_share(part / sum(parts)) for part in parts]


def test_a_slice_that_is_a_category_of_every_page_has_its_colour_and_no_other_slice_has_it() -> None:
    names = ["matmul", "communication", "pooling", "copy", "loss", "activation", "reduction", "optimizer"]
    pie = figures.build_pie([Slice(name, 1.0, "") for name in names])["data"][0]
    colors = dict(zip(names, pie["marker"]["colors"], strict=True))
    own = {name: colors.pop(name) for name in ("communication", "copy", "optimizer")}
    assert own == {name: figures.PALETTE[name][0] for name in own}
    meanings = {figures.PALETTE[name][0] for name in ("communication", "copy", "optimizer", "data")}
    assert not meanings & set(colors.values())
    looks = list(zip(pie["marker"]["colors"], pie["marker"]["pattern"]["shape"], strict=True))
    assert len(set(looks)) == len(looks)


def test_a_ring_leaves_room_for_labels_that_stand_outside_of_it() -> None:
    few, many = (
        figures.build_pie([Slice(f"family {number}", 10.0, "") for number in range(count)]) for count in (4, 6)
    )
    assert "outside" not in few["data"][0]["textposition"]
    assert "outside" in many["data"][0]["textposition"]
    for side in "tb":
        assert many["layout"]["margin"][side] > few["layout"]["margin"][side]


def test_columns_of_many_steps_fill_their_chart() -> None:
    """One long step among ten thousand is in a column with others, which is much lower than the step is."""
    times = np.full(10_000, 5_000_000)
    times[5_000] = 30_000_000
    drawn = figures.build_stack(Stack(np.arange(10_000), {"gap": times}), Axes(y_peak=30_000_000.0))
    top, tallest = drawn["layout"]["yaxis"]["range"][1], max(drawn["data"][0]["y"])
    assert tallest < top < 1.1 * tallest
    assert tallest == pytest.approx(5, rel=0.2)
