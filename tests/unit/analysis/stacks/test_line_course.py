"""A line's time at the beginning and at the end of a run, and what ran meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.format.phases import PHASE_NAMES
from collector.format.run import Run
from profiler_server.analysis.stacks.line_work import Third, part_steps
from profiler_server.analysis.stacks.stacks import read_lines, read_stacks
from profiler_server.facts.case import Hotspot
from tests.support.must import must
from tests.support.runs import build_run
from tests.support.stacks import in_phase, library, own, write_stacks
from tests.unit.diagnosis.edges.base import base

BEGIN, THIRD = 10**12, 10**10
MODULE = library("Module._call_impl", "torch/nn/modules/module.py")
MINE, OTHER = own("mine", 31), own("other", 41)


def thirds(*forward_ns: float) -> tuple[Third, ...]:
    phases = dict.fromkeys(PHASE_NAMES, 0.0)
    return tuple(
        Third(BEGIN + at * THIRD, 10 + 100 * at, {**phases, "forward": time_ns, "backward": 5e6})
        for at, time_ns in enumerate(forward_ns)
    )


def read(path: Path, rows: list[dict[str, Any]], parts: tuple[Third, ...]) -> dict[str, Hotspot]:
    backward = in_phase("backward", 100, library("Tensor.backward", "torch/_tensor.py"))
    rows = [*rows, *({**backward, "start_ns": part.start_ns + 5} for part in parts)]
    rank = Run(write_stacks(build_run(path / "run"), rows)).rank(0)
    found = read_lines(rank, must(read_stacks(rank)), {"forward": 0.5, "backward": 0.5}, {}, parts)
    return {spot.function: spot for spot in found.hotspots}


def sample(third: int, mine: int, other: int, **values: Any) -> list[dict[str, Any]]:
    begin = {"start_ns": BEGIN + third * THIRD + 5, "duration_ns": THIRD - 10}
    return [
        {**in_phase("forward", count, MODULE, frame), **begin, **values}
        for count, frame in ((mine, MINE), (other, OTHER))
        if count
    ]


def test_the_time_of_a_line_is_its_share_of_the_phases_of_each_third(tmp_path: Path) -> None:
    rows = [*sample(0, 20, 80), *sample(1, 40, 60), *sample(2, 60, 40)]
    found = read(tmp_path, rows, thirds(10e6, 12e6, 15e6))
    course = must(found["mine"].course)
    assert course.times_ns == pytest.approx((2e6, 4.8e6, 9e6))
    assert course.growth_ns == pytest.approx(7e6)
    assert course.steps == (10, 210)
    assert course.rest_ns == pytest.approx((13e6, 11e6))
    assert course.error_ns == pytest.approx(8.5e5, rel=0.1), "0.4 of 10 ms and 0.49 of 15 ms, by ten samples' root"
    assert must(found["other"].course).times_ns == pytest.approx((8e6, 7.2e6, 6e6))


def test_threads_are_those_of_the_samples_in_which_one_ran(tmp_path: Path) -> None:
    looked = {"asleep": 15, "running": 40}
    found = read(
        tmp_path, [*sample(0, 20, 0, **looked), *sample(1, 20, 0, **looked), *sample(2, 20, 20)], thirds(1, 1, 1)
    )
    course = must(found["mine"].course)
    assert (course.asleep_frac, course.threads) == (0.75, 2.0)
    other = must(found["other"].course)
    assert (other.asleep_frac, other.threads) == (None, None), "an older recording did not look"


def test_a_run_is_parted_by_its_averaged_steps() -> None:
    first, middle, last = part_steps(base().steps)
    assert first.step < middle.step < last.step
    assert first.start_ns < middle.start_ns < last.start_ns
    assert sum(middle.phases_ns.values()) == pytest.approx(base().steps.mean_ns, rel=0.01)
