"""Lines whose time differs between two versions: matched though they moved, and named only beyond sampling noise."""

from __future__ import annotations

from pathlib import Path

from profiler_server.analysis.compare.comparison import LineShare
from profiler_server.diagnosis.line_shares import compare_lines, compare_sides, list_shares, pool_lines
from profiler_server.facts.case import Hotspot, Line, Lines
from tests.support.histories import Recorded, build_recorded

STEP_NS = 100e6


def make_spot(name: str, share: float, line: int = 5, text: str = "", error: float = 0.02) -> Hotspot:
    """A function; with a text, a line of the training loop."""
    place = (Line(line, share, text),)
    low, high = max(share - error, 0.0), share + error
    return Hotspot(name, "/me/train.py", place, 100, share, low, high, {}, {}, {}, is_of_loop=bool(text))


def make_lines(*spots: Hotspot, **through: float) -> Lines:
    return Lines(1000, spots, 0.0, 0.0, 0.0, through)


def show(found: tuple[LineShare, ...]) -> list[tuple[str, int, int, str, str]]:
    return [
        (each.part.name, round(each.part.a_ns / 1e6), round(each.part.b_ns / 1e6), each.a_place, each.b_place)
        for each in found
    ]


def test_a_line_that_moved_is_the_same_line_by_its_text() -> None:
    a = make_lines(make_spot("main", 0.1, 10, "loss = model(batch).sum()"))
    b = make_lines(make_spot("main", 0.4, 14, "loss = model(batch).mean()"))
    assert show(list_shares((STEP_NS, STEP_NS), (a, b))) == [
        ("loss = model(batch).mean()", 10, 40, "train.py:10", "train.py:14")
    ]


def test_a_function_is_the_same_by_its_name_and_a_change_within_the_noise_is_none() -> None:
    a = make_lines(make_spot("normalize", 0.20, 41), make_spot("mix", 0.20))
    b = make_lines(make_spot("normalize", 0.30, 52), make_spot("mix", 0.215))
    assert show(list_shares((STEP_NS, STEP_NS), (a, b))) == [("normalize()", 20, 30, "train.py:41", "train.py:52")]


def test_a_line_has_its_share_of_the_noise_of_the_step() -> None:
    a, b = (make_lines(make_spot("normalize", share)) for share in (0.2, 0.3))
    assert len(list_shares((STEP_NS, STEP_NS), (a, b), 5e6)) == 1
    assert list_shares((STEP_NS, STEP_NS), (a, b), 60e6) == ()


def test_a_share_that_only_rose_with_the_step_is_judged_in_time() -> None:
    a, b = (make_lines(make_spot("normalize", share)) for share in (0.4, 0.8))
    assert list_shares((STEP_NS, STEP_NS / 2), (a, b)) == ()


def test_a_line_that_is_gone_new_or_small_has_one_place() -> None:
    a, b = make_lines(make_spot("old", 0.3), mend=0.02), make_lines(make_spot("new", 0.3), make_spot("mend", 0.2))
    found = show(list_shares((STEP_NS, STEP_NS), (a, b)))
    assert sorted(found) == [
        ("mend()", 2, 20, "", "train.py:5"),
        ("new()", 0, 30, "", "train.py:5"),
        ("old()", 30, 0, "train.py:5", ""),
    ]


def test_what_few_samples_miss_is_not_gone() -> None:
    a = make_lines(make_spot("rare", 0.06))
    b = Lines(20, (), 1.0, 0.0, 0.0)
    assert list_shares((STEP_NS, STEP_NS), (a, b)) == ()


def test_the_scatter_of_the_runs_of_a_side_is_no_change() -> None:
    def pool(*shares: float) -> tuple[float, Lines]:
        return pool_lines([(STEP_NS, make_lines(make_spot("normalize", share))) for share in shares])

    (a_ns, a), (b_ns, b), (_, wild) = pool(0.19, 0.20, 0.21), pool(0.29, 0.30, 0.31), pool(0.1, 0.3, 0.5)
    assert show(list_shares((a_ns, b_ns), (a, b))) == [("normalize()", 20, 30, "train.py:5", "train.py:5")]
    assert list_shares((a_ns, b_ns), (a, wild)) == ()
    assert b.hotspots[0].high_frac - b.hotspots[0].low_frac < wild.hotspots[0].high_frac - wild.hotspots[0].low_frac


def test_a_line_that_one_run_of_a_side_missed_counts_as_small_there() -> None:
    step_ns, lines = pool_lines([(STEP_NS, make_lines(make_spot("normalize", 0.2))), (2 * STEP_NS, make_lines())])
    assert step_ns == 1.5 * STEP_NS
    assert lines.hotspots[0].share_frac * step_ns == 0.1 * STEP_NS
    assert lines.samples == 2000


def test_lists_of_recorded_runs_are_compared_by_their_stacks(tmp_path: Path) -> None:
    a = [build_recorded(tmp_path / f"a{at}", Recorded(samples=80, line=41, seed=at)) for at in range(3)]
    b = [build_recorded(tmp_path / f"b{at}", Recorded(0, 9.0, 600, 44, seed=at + 3)) for at in range(3)]
    found = {each.part.name: each for each in compare_sides(a, b)}
    assert found["normalize()"].part.meaning == "slower"
    assert found["normalize()"].part.change_ns > 5e6
    assert (found["normalize()"].a_place, found["normalize()"].b_place) == ("train.py:41", "train.py:44")
    assert compare_sides(a, a[::-1]) == ()


def test_two_recorded_runs_are_compared_by_their_stacks(tmp_path: Path) -> None:
    a = build_recorded(tmp_path / "a", Recorded(samples=80, line=41))
    b = build_recorded(tmp_path / "b", Recorded(extra_ms=9.0, samples=600, line=44, seed=1))
    found = {each.part.name: each for each in compare_lines(a, b)}
    assert found["normalize()"].part.meaning == "slower"
    assert (found["normalize()"].a_place, found["normalize()"].b_place) == ("train.py:41", "train.py:44")
    assert found["normalize()"].text == "batch = scale(batch)"
    assert compare_lines(a, a) == ()
