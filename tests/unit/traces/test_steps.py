"""How the steps of a trace and their phases are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.schema.errors import TraceError
from tests.support.reading import codes_of, read_events, train_steps
from tests.support.traces import BASE_US, Event, annotation, call, kernel, operator, step, training_steps

FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def _launching(number: int, at_us: float, length_us: float, kernels: int) -> list[Event]:
    """A step that launches so many kernels of 1 µs."""
    ids = [number * 100 + index for index in range(kernels)]
    calls = [call(at_us + index, 0.5, id_) for index, id_ in enumerate(ids)]
    return [step(number, at_us, length_us), *calls, *(kernel("k", at_us + 2 + i, 1, id_) for i, id_ in enumerate(ids))]


@pytest.mark.parametrize(
    ("kernels", "left"),
    [
        ([10, 10, 7], [1, 2]),  # under 80 % of the events of the step before
        ([10, 10, 8], [1, 2, 3]),
        ([10, 10, 0], [1, 2]),
        ([10, 10, 0, 0], [1, 2]),
        ([10, 7, 0], [1]),
        ([0, 0, 0], [1, 2, 3]),
    ],
)
def test_last_steps_that_launched_too_little_were_cut_off_and_said(
    tmp_path: Path, kernels: list[int], left: list[int]
) -> None:
    events = [event for at, count in enumerate(kernels) for event in _launching(at + 1, at * 100, 90, count)]
    read = read_events(tmp_path, events)
    assert [row["step"] for row in train_steps(read)] == left
    assert ("step_cut_off" in codes_of(read)) == (len(left) < len(kernels))


def test_a_short_last_step_that_is_whole_is_kept_behind_an_outlier(tmp_path: Path) -> None:
    events = [*_launching(1, 0, 50, 5), *_launching(2, 50, 300, 5), *_launching(3, 350, 50, 5)]
    read = read_events(tmp_path, events)
    assert len(train_steps(read)) == 3
    assert not codes_of(read)


@pytest.mark.parametrize("has_loader", [True, False])
def test_short_first_steps_without_markers_are_steps_too(has_loader: bool, tmp_path: Path) -> None:
    """Two optimizers step at the end of each; the first steps take a hundredth of the others."""
    begins = [0, 1_000, 2_000, *(100_000 * n for n in range(1, 6))]
    rows = [event for event in training_steps(8) if not event["name"].startswith("ProfilerStep")]
    rows += [annotation("Optimizer.step#Adam.step", 1_000 * number + 805, 20) for number in range(1, 9)]
    kept = [event for event in rows if has_loader or "DataLoader" not in event["name"]]
    shifted = [{**event, "ts": event["ts"] + later(begins, event["ts"] - BASE_US)} for event in kept]
    found = read_events(tmp_path, shifted).tables["steps"].to_pylist()
    assert [row["step"] for row in found if row["kind"] == "train"] == list(range(1, 9))


def later(begins: list[int], at_us: float) -> float:
    """Return by how much an event of `training_steps` moves, where each step begins at its time."""
    number = int(at_us // 1_000)
    return begins[number - 1] - 1_000.0 * number


def test_steps_are_told_from_an_annotation_that_repeats(tmp_path: Path) -> None:
    events = [annotation(f"iteration {i}", i * 100, 90) for i in range(5)]
    read = read_events(tmp_path, events)
    assert len(train_steps(read)) == 5
    assert 0 < read.facts.facts["steps_confidence_frac"] < 1


def infer(batches: int, fetch_us: float, made_by_workers: bool = False, asks_again: bool = True) -> list[Event]:
    """A loop without an update: each batch is fetched and goes through a model; then the loader is asked once more."""
    events: list[Event] = []
    for number in range(batches):
        at = number * 1000.0
        events += [annotation(FETCH, at, fetch_us), operator("aten::linear", at + 900, 50)]
        events += [] if made_by_workers else [operator("aten::stack", at + 1, fetch_us - 2)]
    events += [annotation(FETCH, batches * 1000.0, 20)] if asks_again else []
    return [*events, operator("aten::cat", batches * 1000.0 + 50, 40)]


@pytest.mark.parametrize("fetch_us", [100.0, 880.0])
def test_batches_of_a_loader_are_steps_where_nothing_is_updated(tmp_path: Path, fetch_us: float) -> None:
    read = read_events(tmp_path, infer(5, fetch_us))
    rows = train_steps(read)
    assert [(row["duration_ns"], row["data_wait_ns"]) for row in rows] == [(1_000_000, int(fetch_us * 1000))] * 5
    assert read.facts.facts["steps_told_by"] == "the batches of a loader"


@pytest.mark.parametrize("taken_out", [[], [operator("aten::set_", 1, 5), operator("aten::set_", 2001, 5)]])
def test_batches_of_workers_are_steps_too(tmp_path: Path, taken_out: list[Event]) -> None:
    """A batch that is there already is taken out of a list, mostly without an operator."""
    rows = train_steps(read_events(tmp_path, [*infer(5, 600.0, made_by_workers=True), *taken_out]))
    assert [row["duration_ns"] for row in rows] == [1_000_000] * 5


def test_batches_of_one_update_are_no_steps(tmp_path: Path) -> None:
    events = [*infer(4, 880.0), annotation("Optimizer.step#SGD.step", 3960, 20)]
    read = read_events(tmp_path, events)
    assert "trace_without_steps" in codes_of(read)


def test_a_trace_without_marks_is_forward_where_anything_runs(tmp_path: Path) -> None:
    """A long pause at its edge or inside belongs to nothing; work of the device is work."""
    events = [operator("aten::mm", 0, 5), kernel("gemm", 5, 3000, 7), operator("aten::mm", 9000, 5)]
    (row,) = read_events(tmp_path, events).tables["steps"].to_pylist()
    assert (row["duration_ns"], row["forward_ns"], row["gap_ns"]) == (9_005_000, 3_010_000, 5_995_000)


def _loop(count: int) -> list[Event]:
    """Return launches of a loop that nothing marks; each pass has two layers."""
    events: list[Event] = []
    for number in range(count):
        at = number * 100.0
        for place, name in enumerate(("embed", "layer", "layer", "head")):
            link = number * 10 + place + 1
            events += [call(at + place * 10, 2, link), kernel(name, at + place * 10 + 5, 8, link)]
    return events


def test_steps_are_told_from_launches_that_repeat(tmp_path: Path) -> None:
    read = read_events(tmp_path, _loop(5))
    rows = read.tables["steps"].to_pylist()
    assert [row["duration_ns"] for row in rows if row["kind"] == "train"][:4] == [100_000] * 4
    assert read.facts.facts["steps_confidence_frac"] == 0.5
    assert "50 % sure" in next(entry.text for entry in read.warnings if entry.code == "steps_inferred")


def test_layers_of_one_pass_are_no_steps(tmp_path: Path) -> None:
    names = ["embed", *["norm", "attention", "mlp"] * 8, "norm_out", "head", "argmax"]
    events = [kernel(name, place * 10, 8, 0) for place, name in enumerate(names)]
    assert "trace_without_steps" in codes_of(read_events(tmp_path, events))


@pytest.mark.parametrize(
    ("chosen", "lengths"),
    [
        ("whole", [2_790_000]),
        ("optimizer", [1000_000] * 2),
        ("aten::linear", [1000_000] * 2),
        ("^Profiler", [999_000] * 3),
    ],
)
def test_steps_can_be_told_by_hand(tmp_path: Path, chosen: str, lengths: list[int]) -> None:
    read = read_events(tmp_path, training_steps(3), steps_from=chosen)
    found = [row["duration_ns"] for row in train_steps(read)]
    assert found[-len(lengths) :] == lengths or found[: len(lengths)] == lengths
    assert read.facts.facts["steps_told_by"].startswith("hand")


def test_fetches_chosen_by_hand_begin_steps_however_long_they_take(tmp_path: Path) -> None:
    events = [
        event
        for at in range(3)
        for event in (annotation("enumerate(DataLoader)#x", at * 100, 90), operator("aten::mm", at * 100 + 92, 6))
    ]
    read = read_events(tmp_path, events, steps_from="DataLoader")
    assert [row["duration_ns"] for row in read.tables["steps"].to_pylist()] == [100_000, 100_000, 98_000]


@pytest.mark.parametrize(("second_us", "lengths_us"), [(150, [50, 50]), (151, [151, 50])])
def test_slices_chosen_by_hand_are_the_steps_where_they_cover_half_of_the_time(
    tmp_path: Path, second_us: int, lengths_us: list[int]
) -> None:
    read = read_events(tmp_path, [operator("mine", 0, 50), operator("mine", second_us, 50)], steps_from="mine")
    assert [row["duration_ns"] // 1000 for row in train_steps(read)] == lengths_us


@pytest.mark.parametrize("chosen", ["(", "nothing like it"])
def test_steps_that_are_not_there_are_refused(tmp_path: Path, chosen: str) -> None:
    with pytest.raises(TraceError, match="--steps-from"):
        read_events(tmp_path, training_steps(3), steps_from=chosen)


@pytest.mark.parametrize(("chosen", "codes"), [("aten::", {"steps_within_steps"}), ("DataLoader", set())])
def test_steps_by_hand_ask_for_no_other_choice_but_are_told_where_they_are_parts_of_steps(
    tmp_path: Path, chosen: str, codes: set[str]
) -> None:
    read = read_events(tmp_path, training_steps(), steps_from=chosen)
    assert codes_of(read) == {"steps_inferred", *codes}
    assert not any("import it again" in warning.text for warning in read.warnings)
