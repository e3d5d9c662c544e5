"""Time outside of any call is given to a phase by what stands on both sides of it."""

from __future__ import annotations

import pytest

from collector.sidecar.steps.rows import (
    BACKWARD,
    DATA,
    END,
    FORWARD,
    GAP,
    H2D,
    OPTIMIZER,
    TAIL,
    UNKNOWN,
    Row,
    classify,
)


@pytest.mark.parametrize(
    ("previous", "following", "phase"),
    [
        (DATA, FORWARD, H2D),
        (OPTIMIZER, FORWARD, H2D),
        (DATA, OPTIMIZER, H2D),
        (FORWARD, BACKWARD, FORWARD),
        (FORWARD, OPTIMIZER, FORWARD),
        (OPTIMIZER, BACKWARD, FORWARD),
        (DATA, BACKWARD, FORWARD),
        (BACKWARD, OPTIMIZER, OPTIMIZER),
        (OPTIMIZER, END, TAIL),
        (OPTIMIZER, DATA, TAIL),
        (BACKWARD, DATA, GAP),
        (BACKWARD, FORWARD, GAP),
        (UNKNOWN, FORWARD, GAP),
        (UNKNOWN, END, GAP),
    ],
)
def test_the_neighbours_decide(previous: int, following: int, phase: int) -> None:
    assert classify(previous, following) == phase


def test_sums_are_kept_when_a_row_has_too_many_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collector.sidecar.steps.rows.MOST_STRETCHES", 10)
    row = Row(0, 1)
    for start in range(100):
        row.add(FORWARD if start % 2 else DATA, start, start + 1)
    row.settle()
    assert (row.sums()[FORWARD], row.sums()[DATA]) == (50, 50)
    assert len(row.stretches) <= 10
