"""Calls of collectives in the log become rows, whenever they are waited for."""

from __future__ import annotations

from pathlib import Path

from collector.format.schema.layout import events_path
from collector.notes import Notes, write_notes
from collector.ring import codes
from collector.ring.clock import Clock
from collector.sidecar.collectives import THIN_FROM, CollectiveRows, is_listed
from collector.sidecar.steps.calls import Call
from collector.sidecar.steps.machine import StepMachine
from collector.sidecar.steps.row_keeping import Done


def call_words(start: int, serial: int, *, waits: bool) -> list[int]:
    spans = [start + codes.COLLECTIVE_START, start + 5 + codes.COLLECTIVE_END]
    return [*spans, (serial << 17 | waits << 16) + codes.CALLED, 4000 + codes.CALLED_BYTES]


def wait_words(start: int, serial: int) -> list[int]:
    return [*wait_without_end(start, serial), start + 20 + codes.COLLECTIVE_END]


def step_words(start: int, number: int) -> list[int]:
    return [start + codes.UPDATE_START, start + 10 + codes.UPDATE_END, number + codes.STEP_ENDED]


def read_rows(path: Path, words: list[int]) -> list[tuple[int | None, int, int, int]]:
    rows = CollectiveRows(path, Clock(0, 0, 0))
    done: list[Done] = []
    machine = StepMachine(done.append)
    machine.feed([900 + codes.BACKWARD_START, 950 + codes.BACKWARD_END, *words])
    machine.finish()
    for entry in done:
        rows.add(entry)
    rows.finish()
    return [(row["step"], row["start_ns"], row["duration_ns"], row["held_ns"]) for row in rows.take()]


def test_a_call_lasts_until_it_was_waited_for_and_holds_the_training_twice(tmp_path: Path) -> None:
    words = [*call_words(1000, 1, waits=True), *wait_words(1300, 1), *step_words(1500, 1)]
    assert read_rows(tmp_path, words) == [(1, 1000, 320, 25)]


def test_a_call_that_is_waited_for_in_the_next_step_belongs_to_its_own(tmp_path: Path) -> None:
    words = [*call_words(1000, 1, waits=True), *step_words(1500, 1), *wait_words(1700, 1), *step_words(1900, 2)]
    assert read_rows(tmp_path, words) == [(1, 1000, 720, 25)]


def test_a_call_that_nobody_waits_for_lasts_as_long_as_it_held(tmp_path: Path) -> None:
    words = [*call_words(1000, 1, waits=False), *call_words(1100, 2, waits=True), *step_words(1500, 1)]
    assert read_rows(tmp_path, words) == [(1, 1000, 5, 5), (1, 1100, 5, 5)]


def test_a_reduction_is_dated_by_its_own_record(tmp_path: Path) -> None:
    backward = [1000 + codes.BACKWARD_START, 2000 + codes.BACKWARD_END]
    told = [700 + codes.REDUCED, 1200 + codes.REDUCED_FROM, codes.CALLED, 4000 + codes.CALLED_BYTES]
    assert read_rows(tmp_path, [*backward, *told, *step_words(2500, 1)]) == [(1, 1200, 700, 0)]


def wait_without_end(start: int, serial: int) -> list[int]:
    return [start + codes.COLLECTIVE_START, serial + codes.AWAITED]


def test_a_wait_that_has_not_ended_names_its_call(tmp_path: Path) -> None:
    """An earlier call that nobody waited for yet is not the one."""
    machine = StepMachine(lambda done: None)
    calls = [*call_words(1000, 1, waits=True), *call_words(1100, 2, waits=True)]
    machine.feed([900 + codes.BACKWARD_START, 950 + codes.BACKWARD_END, *calls, *wait_without_end(1200, 2)])
    moment = machine.find_moment()
    assert moment is not None
    assert moment.begun is moment.calls[1]
    assert (moment.is_collective, moment.ended) == (True, 0)
    machine.feed([1300 + codes.COLLECTIVE_END])
    moment = machine.find_moment()
    assert moment is not None
    assert (moment.begun, moment.ended) == (moment.calls[0], 1)
    assert (moment.calls[1].end, moment.calls[1].held) == (1300, 105)


def test_a_wait_that_failed_has_not_ended_its_call(tmp_path: Path) -> None:
    machine = StepMachine(lambda done: None)
    words = [*call_words(1000, 1, waits=True), *wait_without_end(1200, 1), codes.AWAITED, 1300 + codes.COLLECTIVE_END]
    machine.feed([900 + codes.BACKWARD_START, 950 + codes.BACKWARD_END, *words])
    moment = machine.find_moment()
    assert moment is not None
    assert (moment.ended, moment.is_collective) == (0, False)


def test_a_group_counts_what_all_of_its_ranks_call(tmp_path: Path) -> None:
    """Of DDP's reductions each rank lists some; what is sent to one rank is no call of the others."""
    notes = Notes(0, 1, None, "here", 0, 0, 0, 0)
    kinds = (("allreduce", "1"), ("send", "1"), ("allreduce (DDP)", "2"), ("allgather", "2"))
    notes.collectives = [{"name": name, "group": group, "label": f"mesh_{group}"} for name, group in kinds]
    events_path(tmp_path).mkdir(parents=True)
    write_notes(notes, tmp_path)
    rows = CollectiveRows(tmp_path, Clock(0, 0, 0))
    called = [Call(what, 0, 1, 1, False) for what in (0, 0, 1, 2, 3)]
    open_call = Call(3, 2, 2, 0, True)
    told = rows.describe_groups([*called, open_call])
    assert [(group["name"], group["ended"]) for group in told] == [("1", 2), ("2", 1)]
    assert rows.backward_group == "2"
    assert rows.describe_next(5, open_call) == {"name": "allgather", "bytes": None, "is_begun": True, "group": "2"}


def test_long_runs_list_ever_fewer_steps_and_never_none() -> None:
    listed = [sum(is_listed(step, calls) for step in range(4096)) for calls in (0, THIN_FROM, 16 * THIN_FROM)]
    assert listed == [4096, 256, 16]
