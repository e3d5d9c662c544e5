"""How the steps of a trace and their phases are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.format.schema.errors import TraceError
from collector.traces import read_trace
from collector.traces.format import ReadOptions, TraceTables
from tests.support.traces import (
    Event,
    annotation,
    call,
    kernel,
    operator,
    step,
    training_steps,
    write_trace,
)


def _codes(read: TraceTables) -> set[str]:
    return {warning.code for warning in read.warnings}


def test_step_ends_with_the_device_work_that_it_launched(tmp_path: Path) -> None:
    events = [step(5, 0, 10), call(8, 1, 1), kernel("k", 12, 4, 1), step(6, 11, 13)]
    rows = read_trace(write_trace(tmp_path / "t.json", events)).tables["steps"].to_pylist()
    assert [(row["step"], row["kind"], row["duration_ns"]) for row in rows] == [(5, "train", 16_000)]


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
    read = read_trace(write_trace(tmp_path / "t.json", events))
    assert [row["step"] for row in read.tables["steps"].to_pylist() if row["kind"] == "train"] == left
    assert ("step_cut_off" in _codes(read)) == (len(left) < len(kernels))


def test_a_short_last_step_that_is_whole_is_kept_behind_an_outlier(tmp_path: Path) -> None:
    events = [*_launching(1, 0, 50, 5), *_launching(2, 50, 300, 5), *_launching(3, 350, 50, 5)]
    read = read_trace(write_trace(tmp_path / "t.json", events))
    assert sum(row["kind"] == "train" for row in read.tables["steps"].to_pylist()) == 3
    assert not _codes(read)


def test_phases_of_a_step_sum_to_it(tmp_path: Path) -> None:
    rows = read_trace(write_trace(tmp_path / "t.json", training_steps())).tables["steps"].to_pylist()
    first = next(row for row in rows if row["kind"] == "train")
    phases = {name.removesuffix("_ns"): value for name, value in first.items() if name.endswith("_ns") and value}
    assert phases["data_wait"] == 190_000
    assert phases["h2d"] == 100_000
    assert phases["forward"] == 200_000
    assert phases["backward"] == 100_000
    assert phases["optimizer"] == 200_000
    assert phases["gap"] + phases["tail"] == first["duration_ns"] - 790_000


def test_steps_are_told_from_the_optimizer_without_markers(tmp_path: Path) -> None:
    events = [event for event in training_steps(4) if not event["name"].startswith("ProfilerStep")]
    read = read_trace(write_trace(tmp_path / "t.json", events))
    assert [row["step"] for row in read.tables["steps"].to_pylist() if row["kind"] == "train"] == [1, 2, 3, 4]
    assert read.facts.facts["steps_told_by"] == "optimizer steps"
    assert "steps_inferred" in _codes(read)


def test_steps_are_told_from_an_annotation_that_repeats(tmp_path: Path) -> None:
    events = [annotation(f"iteration {i}", i * 100, 90) for i in range(5)]
    read = read_trace(write_trace(tmp_path / "t.json", events))
    assert sum(row["kind"] == "train" for row in read.tables["steps"].to_pylist()) == 5
    assert 0 < read.facts.facts["steps_confidence_frac"] < 1


def test_trace_without_any_sign_of_steps_is_one_step_and_says_so(tmp_path: Path) -> None:
    read = read_trace(write_trace(tmp_path / "t.json", [operator("aten::mm", 0, 5), operator("aten::mm", 9, 5)]))
    assert [row["duration_ns"] for row in read.tables["steps"].to_pylist()] == [14_000]
    assert "trace_without_steps" in _codes(read)


def test_all_time_in_the_loader_is_data_wait_also_while_the_device_works(tmp_path: Path) -> None:
    loader = "enumerate(DataLoader)#_Iter.__next__"
    first = [step(1, 0, 100), call(10, 1, 1), kernel("k", 50, 100, 1)]
    second = [step(2, 100, 100), annotation(loader, 110, 80), call(195, 1, 2), kernel("k", 210, 90, 2)]
    rows = read_trace(write_trace(tmp_path / "t.json", [*first, *second])).tables["steps"].to_pylist()
    assert [(row["start_ns"], row["data_wait_ns"]) for row in rows] == [(0, 40_000), (150_000, 40_000)]


def test_time_in_which_nothing_runs_before_the_update_is_a_gap(tmp_path: Path) -> None:
    backward = "autograd::engine::evaluate_function: AddmmBackward0"
    events = [
        step(1, 0, 9000),
        operator("aten::mm", 0, 100),
        operator(backward, 100, 900),
        operator("aten::_foreach_norm", 1500, 100),
        call(2500, 400, 1, "cudaDeviceSynchronize"),
        annotation("Optimizer.step#SGD.step", 8500, 500),
    ]
    (row,) = read_trace(write_trace(tmp_path / "t.json", events)).tables["steps"].to_pylist()
    assert (row["gap_ns"], row["optimizer_ns"], row["backward_ns"]) == (5_600_000, 2_400_000, 900_000)


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
    read = read_trace(write_trace(tmp_path / "t.json", _loop(5)))
    rows = read.tables["steps"].to_pylist()
    assert [row["duration_ns"] for row in rows if row["kind"] == "train"][:4] == [100_000] * 4
    assert read.facts.facts["steps_confidence_frac"] == 0.5
    assert "50% sure" in next(entry.text for entry in read.warnings if entry.code == "steps_inferred")


def test_layers_of_one_pass_are_no_steps(tmp_path: Path) -> None:
    names = ["embed", *["norm", "attention", "mlp"] * 8, "norm_out", "head", "argmax"]
    events = [kernel(name, place * 10, 8, 0) for place, name in enumerate(names)]
    assert "trace_without_steps" in _codes(read_trace(write_trace(tmp_path / "t.json", events)))


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
    path = write_trace(tmp_path / "t.json", training_steps(3))
    read = read_trace(path, ReadOptions(steps_from=chosen))
    found = [row["duration_ns"] for row in read.tables["steps"].to_pylist() if row["kind"] == "train"]
    assert found[-len(lengths) :] == lengths or found[: len(lengths)] == lengths
    assert read.facts.facts["steps_told_by"].startswith("hand")


@pytest.mark.parametrize("chosen", ["(", "nothing like it"])
def test_steps_that_are_not_there_are_refused(tmp_path: Path, chosen: str) -> None:
    path = write_trace(tmp_path / "t.json", training_steps(3))
    with pytest.raises(TraceError, match="--steps-from"):
        read_trace(path, ReadOptions(steps_from=chosen))


@pytest.mark.parametrize(("chosen", "codes"), [("aten::", {"steps_within_steps"}), ("DataLoader", set())])
def test_steps_by_hand_ask_for_no_other_choice_but_are_told_where_they_are_parts_of_steps(
    tmp_path: Path, chosen: str, codes: set[str]
) -> None:
    read = read_trace(write_trace(tmp_path / "t.json", training_steps()), ReadOptions(steps_from=chosen))
    assert _codes(read) == {"steps_inferred", *codes}
    assert not any("import it again" in warning.text for warning in read.warnings)


def _sum_phases(events: list[Event], path: Path) -> list[dict[str, int]]:
    rows = read_trace(write_trace(path, events)).tables["phases"].to_pylist()
    found: list[dict[str, int]] = []
    for row in rows:
        if row["index"] == len(found):
            found.append({})
        found[-1][row["phase"]] = found[-1].get(row["phase"], 0) + row["duration_ns"] // 1000
    return found


def test_what_the_device_has_left_of_a_step_has_the_phases_of_its_work(tmp_path: Path) -> None:
    def one(number: int, at_us: float) -> list[Event]:
        """A step that the host leaves after 100 µs and the device after 250 µs."""
        ids = [number * 10 + index for index in range(3)]
        return [
            step(number, at_us, 100),
            operator("aten::linear", at_us + 10, 20),
            call(at_us + 15, 1, ids[0]),
            kernel("forward", at_us + 60, 60, ids[0]),
            operator("autograd::engine::evaluate_function: AddmmBackward0", at_us + 40, 20),
            call(at_us + 45, 1, ids[1]),
            kernel("backward", at_us + 130, 70, ids[1]),
            annotation("Optimizer.step#SGD.step", at_us + 70, 20),
            call(at_us + 75, 1, ids[2]),
            kernel("update", at_us + 200, 50, ids[2]),
        ]

    first = _sum_phases([*one(1, 0), *one(2, 250)], tmp_path / "t.json")[0]
    # Behind the host: forward until 120, then backward with the time before its kernel until 200, then the update.
    assert first == {"forward": 40 + 20, "backward": 20 + 80, "optimizer": 30 + 50, "tail": 10}


def test_work_between_the_batches_of_an_inference_is_forward(tmp_path: Path) -> None:
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    events = [step(1, 0, 10_000)]
    for at in (100, 5_000):
        events += [
            annotation(loader, at, 400),
            operator("aten::copy_", at + 450, 50),
            operator("aten::mm", at + 600, 100),
        ]
        events += [call(at + 610, 5, at), kernel("gemm", at + 700, 1_000, at)]
        events += [operator("aten::mm", at + 4_000, 100)]
    events += [annotation(loader, 9_900, 100)]
    phases = _sum_phases(events, tmp_path / "t.json")[0]
    # From the first operator to the end of the last one, but for the pause of 2.3 ms behind the kernel.
    assert phases["forward"] == 2 * (4_100 - 600 - 2_300)
    assert phases["h2d"] == 2 * 200
    assert phases["data_wait"] == 900
