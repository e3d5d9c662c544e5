"""The phases of a step of a trace, and what the device has left of it."""

from __future__ import annotations

from pathlib import Path

from collector.traces.reading import read_trace
from tests.support.reading import read_events
from tests.support.traces import Event, annotation, call, kernel, operator, step, write_trace


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
