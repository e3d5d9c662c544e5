"""Answers keep their size, say how much of a list they show, and stay JSON."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from profiler_server.assistant.fitting import LIMIT_BYTES, fit, list_some

PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=400)
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner, max_size=60) | st.dictionaries(st.text(max_size=20), inner) | st.lists(inner).map(list_some)
    ),
    max_leaves=80,
)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(max_size=30), VALUES, max_size=8))
def test_any_answer_is_json_within_the_limit(answer: dict[str, object]) -> None:
    text = fit(answer)
    assert len(text.encode()) <= LIMIT_BYTES
    assert isinstance(json.loads(text), dict)


def test_a_list_says_how_much_of_it_is_shown() -> None:
    found = json.loads(fit({"rows": list_some([{"name": f"operator {n}" * 4} for n in range(300)])}))["rows"]
    assert found["total"] == 300
    assert found["shown"] == len(found["entries"]) < 50
    assert found["entries"][0]["name"].startswith("operator 0")


def test_a_list_goes_on_where_it_was_cut() -> None:
    rows = [{"number": n, "text": "x" * 30} for n in range(120)]
    seen: list[int] = []
    while len(seen) < 120:
        found = json.loads(fit({"rows": list_some(rows, len(seen))}))["rows"]
        seen += [row["number"] for row in found["entries"]]
    assert seen == list(range(120))


def test_the_longest_list_is_cut_and_the_others_stay() -> None:
    few, many = list_some([{"n": n} for n in range(5)]), list_some([{"text": "y" * 60} for _ in range(40)])
    found = json.loads(fit({"few": few, "many": many}))
    assert found["few"]["shown"] == 5
    assert 1 <= found["many"]["shown"] < 40


def test_figures_keep_four_digits_and_what_is_absent_is_left_out() -> None:
    found = json.loads(fit({"a": 0.000012345, "b": 1234567.25, "c": None, "d": "", "e": 0, "f": float("nan")}))
    assert found == {"a": 1.234e-05, "b": 1234567.25, "e": 0, "f": "nan"}
