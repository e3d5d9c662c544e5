"""A training ends as it does without a recording, whatever is done to the recording; and nothing is lost in silence."""

from __future__ import annotations

import pytest

from tests.attacks.__main__ import render
from tests.attacks.attempts import Attempt, list_attempts
from tests.attacks.making import make

QUICK = [attempt for attempt in list_attempts() if attempt.is_quick]


@pytest.mark.slow
@pytest.mark.parametrize("attempt", QUICK, ids=[attempt.name for attempt in QUICK])
def test_the_training_ends_as_without_a_recording(attempt: Attempt) -> None:
    outcome = make(attempt)
    assert not outcome.faults, render(outcome)


def test_every_attempt_has_a_name_of_its_own() -> None:
    names = [attempt.name for attempt in list_attempts()]
    assert len(names) == len(set(names)) > 150
