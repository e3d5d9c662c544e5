"""Communication that nothing hides, beside data wait, computation and memory work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collector.traces import read_trace
from tests.support.traces import Event, call, kernel, training_steps, write_trace

US = 1000


def read_step(path: Path, *more: Event) -> dict[str, Any]:
    """Read a step that waits for data from 10 to 200 µs and computes on the device from 350 to 450 and 550 to 700."""
    events = [*training_steps(1), call(1001, 1, 99), *more]
    (row,) = read_trace(write_trace(path / "t.json", events)).tables["steps"].to_pylist()
    assert isinstance(row, dict)
    return row


def test_waiting_for_data_stays_waiting_for_data(tmp_path: Path) -> None:
    row = read_step(tmp_path, kernel("ncclDevKernel_AllReduce", 1100, 150, 99, stream=20))
    assert row["data_wait_ns"] == 190 * US
    assert row["communication_ns"] == 50 * US
    assert row["communication_total_ns"] == 150 * US


def test_what_runs_beside_a_kernel_is_hidden_on_both_sides_of_it(tmp_path: Path) -> None:
    row = read_step(tmp_path, kernel("ncclDevKernel_AllReduce", 1300, 200, 99, stream=20))
    assert row["communication_ns"] == 100 * US
    assert row["communication_total_ns"] == 200 * US


def test_two_collectives_at_once_count_once(tmp_path: Path) -> None:
    both = [kernel("ncclDevKernel_AllReduce", at, 40, 99, stream=stream) for at, stream in ((1460, 20), (1480, 21))]
    row = read_step(tmp_path, *both)
    assert row["communication_ns"] == row["communication_total_ns"] == 60 * US
