"""A clock that heat holds down, from the samples of the GPU to the suggestion."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_server.analysis.device.clocks import read_held_clock
from profiler_server.diagnosis.judging import diagnose
from profiler_server.facts.machine import HeldClock
from tests.support import facts as make
from tests.support.plants import A100, Plant, build_case_run
from tests.support.row_edits import Row
from tests.support.runs import MS
from tests.unit.diagnosis.edges.base import base
from tests.unit.diagnosis.edges.noted import throttled


def clocks(held: int, of: int = 40, flags: int = 2, hz: float = 0.7e9) -> list[Row]:
    """Return samples of a GPU, of which some are held down by heat."""
    return [
        {"start_ns": 1_000 * MS + n * 100 * MS, "source": "gpu 0", "metric": metric, "value": value}
        for n in range(of)
        for metric, value in (
            ("clock_hz", hz if n < held else 1.4e9),
            ("throttle_flags", float(flags) if n < held else 1.0),
        )
    ]


def find(path: Path, rows: list[Row]) -> HeldClock | None:
    run = build_case_run(path, Plant(manifest={"devices": (A100,)}, tables={"resources": rows}))
    return read_held_clock(run.rank(0), 0, 1 << 50)


def test_a_clock_that_heat_holds_down_is_compared_with_the_usual_one(tmp_path: Path) -> None:
    found = find(tmp_path / "run", clocks(20))
    assert found == HeldClock("gpu 0", 0.5, 0.7e9, 1.4e9, True)
    assert found.lost_frac == pytest.approx(0.25)


@pytest.mark.parametrize("rows", [clocks(0), clocks(20, flags=1), clocks(4, of=8), []])
def test_a_power_limit_or_few_samples_are_no_fault(rows: list[Row], tmp_path: Path) -> None:
    assert find(tmp_path / "run", rows) is None


def test_a_clock_that_was_never_free_has_nothing_to_compare_with(tmp_path: Path) -> None:
    found = find(tmp_path / "run", clocks(40))
    assert found is not None
    assert found.lost_frac == 0.0


def test_without_device_times_the_rule_asks_for_them(tmp_path: Path) -> None:
    plant = Plant(manifest={"devices": (A100,)}, tables={"resources": clocks(20)})
    diagnosis = diagnose(build_case_run(tmp_path / "run", plant), 0)
    assert "clock_throttle" in {entry.rule for entry in diagnosis.abstained}
    assert "clock_throttle" not in {entry.rule for entry in diagnosis.suggestions}


def test_what_a_cool_device_saves_is_its_share_of_the_step() -> None:
    found = make.find(throttled(0.25), "clock_throttle")
    assert "700 MHz" in found.measured
    assert found.what_if.touches["kernels"] == pytest.approx(0.25 * 0.9 * base().steps.mean_ns)
