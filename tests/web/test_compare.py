"""Two runs side by side: the page, the interface and the command say the same."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from collector.format.run import open_run
from profiler_server.analysis.compare.comparison import compare_ranks, summarize_comparison
from profiler_server.commands.compare import render
from tests.support.asking import Asker
from tests.support.histories import Recorded, build_recorded
from tests.support.row_edits import lay_end_to_end, write_rows
from tests.support.runs import RunPlan, build_run

CELL = re.compile(r"<t[dh][^>]*>(.*?)</t[dh]>", re.DOTALL)


def build_noisy(path: Path, seed: int, **longer_ms: float) -> Path:
    """A run whose phases scatter by 5 % each, and some of which take longer."""
    random = np.random.default_rng(seed)
    folder = open_run(build_run(path, RunPlan(steps=60))).rank().folder
    rank = open_run(path).rank()
    rows = rank.table("steps").to_pylist()
    for row in rows:
        for name in ("forward", "backward", "h2d", "optimizer", "tail"):
            changed = row[f"{name}_ns"] * (1 + 0.05 * random.standard_normal()) + longer_ms.get(name, 0.0) * 1e6
            row[f"{name}_ns"] = int(changed)
    lay_end_to_end(rows)
    write_rows(folder, "steps", rows)
    return path


def read_page(text: str) -> dict[str, tuple[str, ...]]:
    """Return the cells of each row of the tables of parts by its name."""
    rows = {}
    for row in re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL):
        cells = [re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", cell)).strip() for cell in CELL.findall(row)]
        if len(cells) == 6 and cells[0] not in rows:
            rows[cells[0]] = tuple(cells[1:])
    return rows


def test_the_page_and_the_command_line_say_the_same_to_the_digit(tmp_path: Path) -> None:
    base = tmp_path / "runs"
    build_noisy(base / "a", 1)
    build_noisy(base / "b", 2, backward=4.0, tail=0.02)
    asker = Asker(base)
    found = compare_ranks(*(open_run(base / name).rank() for name in "ab"))
    terminal, page = render(found), asker.ask("/compare?a=a&b=b").text
    assert summarize_comparison(found) in page
    shown = read_page(page)
    assert {part.name for part in (*found.phases, *found.operators) if part.a_ns or part.b_ns} <= shown.keys()
    marks = {"slower": "*", "faster": "*", "maybe slower": "?", "maybe faster": "?", "noise": "", "too few steps": ""}
    seen = set()
    for part in (*found.phases, *found.operators, found.step):
        if not (part.a_ns or part.b_ns):
            continue
        a, b, change, noise, meaning = shown["Whole step" if part is found.step else part.name]
        line = next(line for line in terminal.splitlines() if line.startswith(f"{part.name:<40}"))
        cells = re.split(r"\s{2,}", line[40:].strip())
        assert cells == [a, b, change + marks[meaning], noise.removeprefix("± ")]
        seen.add(meaning)
    assert {"slower", "noise"} <= seen
    assert found.legend in page
    assert found.legend in terminal


@pytest.mark.parametrize(
    ("operators", "words"), [(True, "among 7 phases or 7 operators"), (False, "among 7 phases chance")]
)
def test_the_legend_counts_what_was_tested(tmp_path: Path, operators: bool, words: str) -> None:
    rank = open_run(build_run(tmp_path / "a", RunPlan(operators=operators))).rank()
    assert words in compare_ranks(rank, rank).legend


def test_the_change_is_said_and_drawn_with_its_noise(asker: Asker) -> None:
    text = asker.ask("/compare?a=healthy&b=team/slow").text
    assert "B is slower by 95.6 ms" in text
    assert '<option value="team/slow" selected>' in text
    assert "+95.6 ms" in text
    assert "−95.6 ms" in asker.ask("/compare?a=team/slow&b=healthy").text
    assert 'B <a href="/runs/team/slow/"><bdi>team/slow</bdi></a>' in text
    assert "From A to B" in text
    assert "the 95 % interval of each change" in text
    assert '"error_y"' in text


def test_two_ticked_runs_lead_to_the_comparison_the_older_first(asker: Asker) -> None:
    answer = asker.ask("/compare?run=healthy&run=team%2Fslow")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/compare?a=team%2Fslow&b=healthy"


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("", 200, "Choose two runs"),
        ("a=healthy", 200, "Choose two runs"),
        ("run=healthy", 400, "choose two"),
        ("a=healthy&b=none", 404, "There is no run"),
        ("a=../x&b=healthy", 404, "is not the id of a run"),
    ],
)
def test_what_cannot_be_compared_says_why(asker: Asker, query: str, status: int, words: str) -> None:
    answer = asker.ask(f"/compare?{query}")
    assert answer.status_code == status
    assert words in answer.text


def test_several_ticked_runs_have_the_oldest_as_their_baseline(asker: Asker) -> None:
    answer = asker.ask("/compare?run=healthy&run=team%2Fslow&run=ranks")
    assert answer.headers["location"] == "/compare?a=ranks&b=team%2Fslow&b=healthy"
    assert asker.ask("/compare?" + "&".join(f"run=r{at}" for at in range(9))).status_code == 400


def test_several_runs_have_a_column_each_and_any_can_be_the_baseline(asker: Asker) -> None:
    text = asker.ask("/compare?a=healthy&b=team/slow&b=ranks&b=healthy").text
    assert "+95.6 ms" in text
    assert 'href="/compare?a=team%2Fslow&amp;b=healthy&amp;b=ranks"' in text
    assert text.count("Make baseline") == 2


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("b=ranks&b=healthy", 400, "a= is missing"),
        ("a=healthy&b=ranks&b=none", 404, "There is no run"),
        ("a=healthy&" + "&".join(f"b=r{at}" for at in range(8)), 400, "choose two to 8"),
    ],
)
def test_several_runs_that_cannot_be_compared_say_why(asker: Asker, query: str, status: int, words: str) -> None:
    answer = asker.ask(f"/compare?{query}")
    assert (answer.status_code, words in answer.text) == (status, True)


def test_several_comparisons_are_data_too(asker: Asker) -> None:
    runs = asker.ask("/api/v1/compare/several?a=healthy&b=team/slow&b=ranks").json()["runs"]
    assert [each["run"] for each in runs] == ["team/slow", "ranks"]
    assert runs[0]["comparison"]["step"]["b_ns"] > runs[0]["comparison"]["step"]["a_ns"]


def test_lines_whose_time_changed_have_both_places(tmp_path: Path) -> None:
    build_recorded(tmp_path / "a", Recorded(samples=80, line=41))
    build_recorded(tmp_path / "b", Recorded(extra_ms=9.0, samples=600, line=44, seed=1))
    asker = Asker(tmp_path)
    text = asker.ask("/compare?a=a&b=b").text
    assert "Lines whose time changed" in text
    assert "<code>train.py:41</code>" in text
    assert "<code>train.py:44</code>" in text
    (line,) = (
        each for each in asker.ask("/api/v1/compare?a=a&b=b").json()["lines"] if each["part"]["name"] == "normalize()"
    )
    assert (line["a_place"], line["b_place"]) == ("train.py:41", "train.py:44")


def test_the_comparison_is_data_too(asker: Asker) -> None:
    answer = asker.ask("/api/v1/compare?a=healthy&b=team/slow").json()
    waits = next(part for part in answer["comparison"]["phases"] if part["name"] == "Data wait")
    assert waits["b_ns"] - waits["a_ns"] == pytest.approx(95.6e6, rel=1e-3)
    assert asker.ask("/api/v1/compare?a=healthy").status_code == 422


def test_two_runs_that_are_the_same_have_nothing_to_draw(asker: Asker) -> None:
    text = asker.ask("/compare?a=healthy&b=healthy").text
    assert "No clear difference" in text
    assert "From A to B" not in text
