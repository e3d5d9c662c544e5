"""Communication that nothing hides, beside data wait, computation and memory work."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from tests.support.reading import read_events
from tests.support.traces import Event, call, kernel, operator, training_steps

US = 1000


def read_step(path: Path, *more: Event) -> dict[str, Any]:
    """Read a step that waits for data from 10 to 200 µs and computes on the device from 350 to 450 and 550 to 700."""
    events = [*training_steps(1), call(1001, 1, 99), *more]
    (row,) = read_events(path, events).tables["steps"].to_pylist()
    assert isinstance(row, dict)
    return row


def test_two_collectives_at_once_count_once(tmp_path: Path) -> None:
    both = [kernel("ncclDevKernel_AllReduce", at, 40, 99, stream=stream) for at, stream in ((1460, 20), (1480, 21))]
    row = read_step(tmp_path, *both)
    assert row["communication_ns"] == row["communication_total_ns"] == 60 * US


def test_communication_counts_in_the_step_in_which_it_ran_and_nowhere_between(tmp_path: Path) -> None:
    """Steps run from 1,000, 3,000 and 5,000 µs for 999 µs each, so that a collective may begin or end outside of one."""
    steps = training_steps(3)
    events = [{**event, "ts": event["ts"] + 1000 * (number // 11)} for number, event in enumerate(steps)]
    spans = ((950, 100), (1950, 100), (2500, 100), (2950, 400), (3460, 20), (3720, 30))
    events += [kernel("ncclDevKernel_AllReduce", *span, 900 + span[0], stream=20) for span in spans]
    tables = read_events(tmp_path, events).tables
    rows = [row for row in tables["steps"].to_pylist() if row["kind"] == "train"]
    assert [row["communication_total_ns"] for row in rows] == [99 * US, 400 * US, 0]
    assert [row["communication_ns"] for row in rows] == [59 * US, 210 * US, 0]
    phases = tables["phases"].to_pylist()
    first_ns = rows[0]["start_ns"] - 1000 * US
    assert [
        ((row["start_ns"] - first_ns) // US, row["duration_ns"] // US)
        for row in phases
        if row["phase"] == "communication"
    ] == [(1000, 10), (1950, 49), (3000, 10), (3200, 150), (3460, 20), (3720, 30)]
    assert [row["phase"] for row in phases if row["step"] == 2][2:6] == ["communication", "forward"] * 2
    for row in rows:
        own = [phase for phase in phases if phase["step"] == row["step"]]
        ends = [phase["start_ns"] + phase["duration_ns"] for phase in own]
        assert [phase["start_ns"] for phase in own] == [row["start_ns"], *ends[:-1]]
        assert ends[-1] == row["start_ns"] + row["duration_ns"]
        assert all(a["phase"] != b["phase"] for a, b in itertools.pairwise(own))


@pytest.mark.parametrize(("thread", "exposed_us"), [(100, 100), (200, 50)])
def test_a_collective_of_the_host_is_hidden_by_operators_unless_it_holds_the_training_thread(
    tmp_path: Path, thread: int, exposed_us: int
) -> None:
    """It lasts 100 µs, and an operator of another thread runs beside 50 of them."""
    beside = {**operator("aten::mul", 1830, 50), "tid": 300}
    row = read_step(tmp_path, {**operator("gloo:all_reduce", 1820, 100), "tid": thread}, beside)
    assert (row["communication_ns"], row["communication_total_ns"]) == (exposed_us * US, 100 * US)
