"""How often DDP's records are read."""

from __future__ import annotations

from collector.signals.communication import TRIALS, ReadingPace

BACKWARD_NS = 100_000_000


def test_a_reading_that_was_interrupted_does_not_end_the_readings() -> None:
    pace = ReadingPace()
    pace.note(50_000_000)
    assert pace.choose_every(BACKWARD_NS) == 1
    for _ in range(TRIALS - 1):
        pace.note(90_000)
    assert pace.choose_every(BACKWARD_NS) == 1


def test_dear_readings_become_rare() -> None:
    pace = ReadingPace()
    for _ in range(TRIALS):
        pace.note(90_000)
    assert pace.choose_every(1_000_000) == 64
