"""Time outside of any call is given to a phase by what stands on both sides of it, and by what the row turns out to be."""

from __future__ import annotations

import pytest

from collector.format.phases import BACKWARD, DATA_WAIT, FORWARD, GAP, H2D, OPTIMIZER, PHASE_NAMES, TAIL
from collector.ring import codes
from collector.sidecar.steps import rows
from collector.sidecar.steps.machine import StepMachine
from collector.sidecar.steps.row_keeping import Done
from collector.sidecar.steps.rows import END, UNKNOWN, classify

ACT = ("FORWARD_START", "NO_GRAD", "FORWARD_END")
CALL = ("FORWARD_START", "FORWARD_END")
ZERO = ("ZERO_START", "ZERO_END")
BACK = ("BACKWARD_START", "BACKWARD_END")
UPDATE = ("UPDATE_START", "UPDATE_END")
FETCH = ("FETCH_START", "FETCH_END")
BETWEEN_NS = 1_000
Call = tuple[str, ...]


def spell(start: int, *calls: Call) -> list[int]:
    """Return the words of these calls, with 1 µs before each, and next to nothing inside of them."""
    words, at = [], start
    for call in calls:
        at += BETWEEN_NS
        for name in call:
            words.append(getattr(codes, name) + (1 if name == "NO_GRAD" else at))
            at += name != "NO_GRAD"
    return words


def read_rows(*calls: Call) -> list[Done]:
    """Return the rows of these calls, which begin 8 µs after the end of a first step."""
    done: list[Done] = []
    machine = StepMachine(done.append)
    machine.feed([*spell(0, ACT, CALL, BACK, UPDATE), codes.STEP_ENDED + 1])
    machine.feed(spell(11_050, *calls))
    machine.finish()
    return done[1:]


def tell(done: Done) -> dict[str, int]:
    """Return the phases of a row with the µs that each has of the time between calls."""
    sums = zip(PHASE_NAMES, done.row.sums(), strict=True)
    return {name: value // BETWEEN_NS for name, value in sums if value >= BETWEEN_NS}


@pytest.mark.parametrize(
    ("calls", "gap", "forward"),
    [
        ((CALL, CALL, BACK, UPDATE), 0, 2),
        ((ACT, CALL, BACK, UPDATE), 1, 1),
        ((ACT, ACT, ACT, CALL, BACK, UPDATE), 3, 1),
        ((ACT, ZERO, CALL, BACK, UPDATE), 1, 1),
        ((CALL, ACT, BACK, UPDATE), 0, 2),
        ((CALL, ACT, CALL, BACK, UPDATE), 0, 3),
        ((CALL, ACT, ZERO, BACK, UPDATE), 0, 3),
        ((ACT, CALL, BACK, ACT, CALL, BACK, UPDATE), 3, 2),
        ((ACT, CALL, UPDATE), 0, 2),
    ],
)
def test_time_after_a_forward_without_gradients_is_the_loops_own(
    calls: tuple[Call, ...], gap: int, forward: int
) -> None:
    """A loss may be pending once a forward had gradients, and without a backward it is not known what trains."""
    (step,) = read_rows(*calls)
    phases = tell(step)
    assert step.kind == "train"
    assert phases.get("forward", 0) == forward
    assert phases["gap"] == 8 + gap


CRITIC, ACTOR = (ACT, CALL, BACK, UPDATE), (CALL, BACK, UPDATE)


@pytest.mark.parametrize(
    ("steps", "kinds"),
    [
        ((CRITIC, CRITIC, ACTOR, CRITIC, CRITIC, ACTOR, CRITIC), ["train"] * 7),
        ((CRITIC, *[ACTOR] * 3, CRITIC), ["train"] * 5),
        ((CRITIC, *[ACTOR] * 4, (ACT, *CRITIC)), [*["train"] * 5, "eval", "eval", "train"]),
    ],
)
def test_acting_belongs_to_the_steps_of_a_loop_with_several_updates(
    steps: tuple[tuple[Call, ...], ...], kinds: list[str]
) -> None:
    done: list[Done] = []
    machine = StepMachine(done.append)
    for number, calls in enumerate(steps, 1):
        machine.feed([*spell(100_000 * number, *calls), codes.STEP_ENDED + number])
    machine.finish()
    assert [row.kind for row in done if row.kind != "startup"] == kinds


def test_models_that_only_infer_have_no_gap_between_their_forwards() -> None:
    done = read_rows(FETCH, ACT, ACT, FETCH, ACT, ACT)
    batches = [row for row in done if row.kind == "eval"]
    assert [tell(row)["forward"] for row in batches] == [1, 1]


def test_sums_are_kept_where_a_row_has_too_many_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = (*[ACT] * 40, CALL, BACK, UPDATE)
    (whole,) = read_rows(*calls)
    monkeypatch.setattr(rows, "MOST_STRETCHES", 10)
    (folded,) = read_rows(*calls)
    assert folded.row.sums() == whole.row.sums()
    assert tell(whole)["gap"] >= 40


@pytest.mark.parametrize(
    ("previous", "following", "phase"),
    [
        (DATA_WAIT, FORWARD, H2D), (OPTIMIZER, FORWARD, H2D), (DATA_WAIT, OPTIMIZER, H2D),
        (FORWARD, BACKWARD, FORWARD), (FORWARD, OPTIMIZER, FORWARD), (OPTIMIZER, BACKWARD, FORWARD),
        (DATA_WAIT, BACKWARD, FORWARD), (BACKWARD, OPTIMIZER, OPTIMIZER), (OPTIMIZER, END, TAIL),
        (OPTIMIZER, DATA_WAIT, TAIL), (BACKWARD, DATA_WAIT, GAP), (BACKWARD, FORWARD, GAP),
        (UNKNOWN, FORWARD, GAP), (UNKNOWN, END, GAP),
    ],
)  # fmt: skip
def test_the_neighbours_decide(previous: int, following: int, phase: int) -> None:
    assert classify(previous, following) == phase
