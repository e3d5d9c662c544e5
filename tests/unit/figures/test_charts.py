"""Figures: charts as Plotly dicts, strips, flames and waterfalls."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.format.phases import PALETTE
from profiler_server.analysis.stacks.frames import MOST_DEPTH, Frame, lay_out
from profiler_server.facts.steps import FlameNode
from profiler_server.figures import charts as figures
from profiler_server.figures.charts import BINNED_BARS, DRAWN_POINTS, Axes, Line, Slice, Stack
from profiler_server.figures.flame import ROW_HEIGHT, build_flame
from profiler_server.figures.strips import build_strip, build_ticks
from profiler_server.figures.waterfall import Fall, build_waterfall, find_base_ns, list_levels
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
    weak = {name: _contrast(colors[theme], ground) for name, colors in PALETTE.items()}
    assert {name: ratio for name, ratio in weak.items() if ratio < 3.0} == {}


@pytest.mark.parametrize("theme", [0, 1])
def test_colors_of_phases_are_apart_for_every_kind_of_sight(theme: int) -> None:
    solid = [c for name, c in PALETTE.items() if name not in ("idle", "worse", "overlap")]
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
    assert own == {name: PALETTE[name][0] for name in own}
    meanings = {PALETTE[name][0] for name in ("communication", "copy", "optimizer", "data")}
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


def _frame(name: str, line: int = 1, package: str = "") -> Frame:
    return Frame(name, "/home/me/train.py", line, package)


def test_the_widest_function_stands_on_the_left_below_its_caller() -> None:
    main = _frame("main")
    nodes = lay_out({(main, _frame("log")): 20, (main, _frame("accuracy", 8)): 30, (main, _frame("accuracy", 9)): 40})
    assert [(node.label, node.depth, node.start, node.samples, node.place) for node in nodes] == [
        ("main", 0, 0, 90, "train.py:1"),
        ("accuracy", 1, 0, 70, "train.py:9"),
        ("log", 1, 70, 20, "train.py:1"),
    ]


_STACKS = st.dictionaries(
    st.lists(st.sampled_from([_frame(name) for name in "abcd"]), min_size=1, max_size=40).map(tuple),
    st.integers(1, 1_000),
    max_size=30,
)


@given(_STACKS)
def test_every_function_lies_within_its_caller_and_beside_the_others(stacks: dict[tuple[Frame, ...], int]) -> None:
    whole = sum(stacks.values())
    ends = {-1: whole}
    at = dict.fromkeys(range(-1, MOST_DEPTH + 1), 0)
    for node in lay_out(stacks):
        assert node.depth < MOST_DEPTH
        assert node.start >= at[node.depth]
        assert node.start + node.samples <= ends[node.depth - 1]
        at[node.depth] = ends[node.depth] = node.start + node.samples
        at[node.depth + 1] = node.start


def test_boxes_are_placed_in_percent_below_one_for_the_whole() -> None:
    nodes = [FlameNode("main", "train.py:1", True, 0, 0, 50), FlameNode("x" * 500, "", False, 1, 25, 25)]
    figure = build_flame("Tail", nodes, 100)
    assert figure.height == 3 * ROW_HEIGHT
    assert [(box.kind, box.x, box.width, box.y) for box in figure.boxes] == [
        ("whole", "0.000%", "100.000%", 0),
        ("own", "0.000%", "50.000%", 20),
        ("library", "25.000%", "25.000%", 40),
    ]
    assert figure.boxes[1].title == "main at train.py:1: 50 % of the samples (50)"
    assert len(figure.boxes[2].text) < 130


def test_a_narrow_box_has_no_text_but_says_what_it_is() -> None:
    (_, box) = build_flame("Tail", [FlameNode("main", "train.py:1", True, 0, 0, 1)], 1_000).boxes
    assert (box.text, box.title) == ("", "main at train.py:1: 0 % of the samples (1)")


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
