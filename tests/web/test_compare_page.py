"""The comparison page: what it says, and how one gets there."""

from __future__ import annotations

import pytest

from tests.support.asking import Asker


def test_says_which_phase_changed_and_by_how_much(asker: Asker) -> None:
    text = asker.ask("/compare?a=healthy&b=team/slow").text
    assert "B is slower by 95.6 ms" in text
    assert '<option value="team/slow" selected>' in text
    assert "+95.6 ms" in text
    assert "−95.6 ms" in asker.ask("/compare?a=team/slow&b=healthy").text
    assert 'B <a href="/runs/team/slow/"><bdi>team/slow</bdi></a>' in text


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


def test_the_comparison_is_data_too(asker: Asker) -> None:
    answer = asker.ask("/api/v1/compare?a=healthy&b=team/slow").json()
    waits = next(part for part in answer["comparison"]["phases"] if part["name"] == "Data wait")
    assert waits["b_ns"] - waits["a_ns"] == pytest.approx(95.6e6, rel=1e-3)
    assert asker.ask("/api/v1/compare?a=healthy").status_code == 422


def test_the_change_is_drawn_with_its_noise(asker: Asker) -> None:
    text = asker.ask("/compare?a=healthy&b=team/slow").text
    assert "From A to B" in text
    assert "the 95 % interval of each change" in text
    assert '"error_y"' in text


def test_two_runs_that_are_the_same_have_nothing_to_draw(asker: Asker) -> None:
    text = asker.ask("/compare?a=healthy&b=healthy").text
    assert "No clear difference" in text
    assert "From A to B" not in text
