"""The phases of a step of a trace, and what the device has left of it."""

from __future__ import annotations

from pathlib import Path

from collector.traces import read_trace
from tests.support.reading import read_events
from tests.support.traces import Event, annotation, call, kernel, operator, step, training_steps, write_trace


def test_phases_of_a_step_sum_to_it(tmp_path: Path) -> None:
    rows = read_events(tmp_path, training_steps()).tables["steps"].to_pylist()
    first = next(row for row in rows if row["kind"] == "train")
    phases = {name.removesuffix("_ns"): value for name, value in first.items() if name.endswith("_ns") and value}
    assert phases["data_wait"] == 190_000
    assert phases["h2d"] == 100_000
    assert phases["forward"] == 200_000
    assert phases["backward"] == 100_000
    assert phases["optimizer"] == 200_000
    assert phases["gap"] + phases["tail"] == first["duration_ns"] - 790_000


def test_all_time_in_the_loader_is_data_wait_also_while_the_device_works(tmp_path: Path) -> None:
    loader = "enumerate(DataLoader)#_Iter.__next__"
    first = [step(1, 0, 100), call(10, 1, 1), kernel("k", 50, 100, 1)]
    second = [step(2, 100, 100), annotation(loader, 110, 80), call(195, 1, 2), kernel("k", 210, 90, 2)]
    rows = read_events(tmp_path, [*first, *second]).tables["steps"].to_pylist()
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
    (row,) = read_events(tmp_path, events).tables["steps"].to_pylist()
    assert (row["gap_ns"], row["optimizer_ns"], row["backward_ns"]) == (5_600_000, 2_400_000, 900_000)


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


def test_work_of_one_phase_that_the_device_has_left_is_one_stretch_and_none_is_empty(tmp_path: Path) -> None:
    events = [
        step(1, 0, 100),
        operator("aten::linear", 10, 20),
        operator("autograd::engine::evaluate_function: AddmmBackward0", 40, 20),
        *(call(at, 1, at) for at in (15, 18, 45, 46)),
        kernel("forward", 60, 60, 15),
        kernel("forward", 120, 30, 18),
        kernel("backward, hidden", 110, 5, 46, stream=8),
        kernel("backward", 160, 40, 45),
    ]
    rows = read_events(tmp_path, events).tables["phases"].to_pylist()
    assert [(row["phase"], row["start_ns"] // 1000, row["duration_ns"] // 1000) for row in rows] == [
        ("forward", 0, 40),
        ("backward", 40, 20),
        ("tail", 60, 40),
        ("forward", 100, 50),
        ("backward", 150, 50),
    ]


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


def test_a_mark_without_a_length_parts_no_step(tmp_path: Path) -> None:
    optimizer = "Optimizer.step#SGD.step"
    events = [step(1, 0, 1_000), operator("aten::mm", 0, 900), annotation(optimizer, 950, 50)]
    empty = annotation(optimizer, 100, 0)
    assert _sum_phases([*events, empty], tmp_path / "t.json") == [{"forward": 950, "optimizer": 50}]


def test_a_batch_is_prepared_until_the_training_thread_computes(tmp_path: Path) -> None:
    loader, optimizer = "enumerate(DataLoader)#_Iter.__next__", "Optimizer.step#SGD.step"
    events = [
        step(1, 0, 1_000),
        annotation(loader, 0, 100),
        operator("aten::mm", 400, 100),
    ]
    events += [{**operator("aten::mm", 250, 50), "tid": 999}, annotation(optimizer, 900, 100)]
    assert _sum_phases(events, tmp_path / "t.json") == [
        {"data_wait": 100, "h2d": 300, "forward": 500, "optimizer": 100}
    ]


def test_updates_one_after_another_stay_apart_where_nothing_communicates(tmp_path: Path) -> None:
    optimizer = "Optimizer.step#SGD.step"
    events = [
        step(1, 0, 1_000),
        operator("aten::mm", 0, 400),
        annotation(optimizer, 500, 100),
        annotation(optimizer, 700, 200),
    ]
    rows = read_trace(write_trace(tmp_path / "t.json", events)).tables["phases"].to_pylist()
    assert [row["duration_ns"] // 1000 for row in rows if row["phase"] == "optimizer"] == [100, 100, 200]
