"""The mutants themselves: what is changed, what is left alone, and that a survivor is told from one that was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.__main__ import build_planted
from tests.mutation.equivalents import EQUIVALENTS, Equivalent, find_equivalent
from tests.mutation.mutants import list_mutants
from tests.mutation.rooms import PLANTED, ROOMS, Planted

ROOT = Path(__file__).parents[2]


def change(source: str) -> set[str]:
    return {f"{mutant.before} -> {mutant.after}" for mutant in list_mutants("a.py", source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {"a < b -> a <= b"}),
        ("x = a >> b", {"a >> b -> a << b"}),
        ("LIMIT = 0.2", {"0.2 -> 0.1", "0.2 -> 0.4"}),
        ("LIMIT_NS = 1e9", {"1000000000.0 -> 500000000.0", "1000000000.0 -> 2000000000.0"}),
        ("x = v.std(ddof=1)", {"1 -> 0", "1 -> 2"}),
        ("x = p(v, 99)", {"99 -> 98", "99 -> 198"}),
        ("x = np.maximum(a, b)", {"np.maximum(a, b) -> np.minimum(a, b)"}),
        ("x = subtract(a, b)", {"subtract(a, b) -> a"}),
        ("x = a and not b", {"a and (not b) -> a or not b", "not b -> b"}),
    ],
)
def test_one_thing_is_changed_at_a_time(source: str, expected: set[str]) -> None:
    assert change(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "def f(a: int | None) -> X[1]: ...",
        "raise ValueError(f'{a + 1}')",
        "Edges = tuple[A, 2]",
        "'a text'",
        "@f(1)\ndef g(): ...",
    ],
)
def test_what_is_no_behaviour_is_left_alone(source: str) -> None:
    assert change(source) == set()


def test_the_change_stands_where_it_was_and_the_rest_is_as_before() -> None:
    source = "# größer\nx = 'ü' if a > 1 else 2  # why\n"
    mutant = next(mutant for mutant in list_mutants("a.py", source) if mutant.before == "a > 1")
    assert mutant.source == "# größer\nx = 'ü' if (a >= 1) else 2  # why\n"
    assert (mutant.line, str(mutant)) == (2, "a.py:2  a > 1  ->  a >= 1")


@pytest.mark.parametrize("name", ROOMS)
def test_the_files_and_tests_of_a_room_are_there(name: str) -> None:
    assert [path for path in (*ROOMS[name].files, *ROOMS[name].tests) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_change_by_hand_still_fits_its_file(planted: Planted) -> None:
    assert build_planted(ROOT, planted).source != (ROOT / planted.file).read_text(encoding="utf-8")


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_the_tests_that_must_notice_a_planted_mistake_are_there(planted: Planted) -> None:
    assert [path for path in planted.tests if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("equivalent", EQUIVALENTS, ids=lambda equivalent: f"{equivalent.file}: {equivalent.line}")
def test_a_mutant_that_is_left_out_is_one_and_says_why(equivalent: Equivalent) -> None:
    mutants = list_mutants(equivalent.file, (ROOT / equivalent.file).read_text(encoding="utf-8"))
    assert [find_equivalent(mutant) for mutant in mutants].count(equivalent) == 1
    assert equivalent.reason
