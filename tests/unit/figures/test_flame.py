"""A flame graph: callers above what they call, each as wide as its samples, and never outside of its caller."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from profiler_server.analysis.stacks.frames import MOST_DEPTH, Frame, lay_out
from profiler_server.figures.flame import ROW_HEIGHT, Flaming, build_flame


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
    nodes = [Flaming("main", "train.py:1", True, 0, 0, 50), Flaming("x" * 500, "", False, 1, 25, 25)]
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
    (_, box) = build_flame("Tail", [Flaming("main", "train.py:1", True, 0, 0, 1)], 1_000).boxes
    assert (box.text, box.title) == ("", "main at train.py:1: 0 % of the samples (1)")
