"""Rules that say what a window shows without a step time: when they speak, when not, and what they lack."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from profiler_server.analysis.replay.reading import replay_rank
from profiler_server.facts.case import Abstention, Case
from profiler_server.facts.machine import Gain, Replayed
from tests.support import facts as make
from tests.support.window_cases import WINDOW_CASES, allocate, allocate_nothing
from tests.support.windows import PARTS, Machine, build_window, compute
from tests.unit.diagnosis.edges.base import base
from tests.unit.diagnosis.edges.window import seeing

GAIN = Gain(0.1, 0.2, 0.3)


def checkpointing(peak: float | None) -> Case:
    case = seeing("checkpointing", GAIN)
    return replace(case, device=replace(case.device, memory_peak_frac=peak))


@pytest.mark.parametrize("rule", WINDOW_CASES)
def test_a_rule_without_a_window_says_what_it_lacks(rule: str) -> None:
    found = make.find(make.with_device(base()), rule)
    assert isinstance(found, Abstention)
    assert found.rule == rule
    assert "which call launched" in found.missing


def test_what_a_trace_cannot_know_is_asked_for() -> None:
    found = make.find(checkpointing(None), "needless_checkpointing")
    assert isinstance(found, Abstention)
    assert "memory" in found.missing


def test_a_replay_that_does_not_explain_its_window_predicts_nothing() -> None:
    case = seeing("sync_points", GAIN, idle_ns=1e6)
    assert case.device.replay is not None
    wrong = replace(case.device.replay, replayed_ns=0.9 * case.device.replay.measured_ns)
    found = make.find(replace(case, device=replace(case.device, replay=wrong)), "sync_points")
    assert isinstance(found, Abstention)
    assert "90.0 %" in found.missing


def test_a_longer_step_in_the_window_lowers_what_is_sure(tmp_path: Path) -> None:
    """Recording in detail takes time of the host: that part of a gain may not be there in other steps."""
    case = seeing("sync_points", GAIN, idle_ns=1e6)
    assert case.device.replay is not None
    step_ns = case.steps.mean_ns
    same = Replayed(5, 5 * step_ns, 5 * step_ns, seen=case.device.replay.seen)
    longer = replace(same, measured_ns=5.4 * step_ns, replayed_ns=5.4 * step_ns)
    lows = []
    for replay in (same, longer):
        found = make.find(replace(case, device=replace(case.device, replay=replay)), "sync_points")
        lows.append(found.least_frac)
    assert lows[0] == pytest.approx(0.5)
    assert 0.0 < lows[1] < 0.25


def test_a_device_without_launches_has_no_replay(tmp_path: Path) -> None:
    run = build_window(tmp_path, lambda machine: machine.work(1_000.0), steps=3)

    assert replay_rank(run.rank()) is None


@pytest.mark.parametrize(("steps", "is_told"), [(2, False), (3, True)])
def test_calls_to_the_driver_count_where_most_steps_have_them(steps: int, is_told: bool, tmp_path: Path) -> None:
    parts = itertools.count()

    def body(machine: Machine) -> None:
        (allocate if next(parts) < steps * PARTS else allocate_nothing)(machine)

    found = replay_rank(build_window(tmp_path, body, steps=4).rank())
    assert found is not None
    assert ("allocator_calls" in found.seen) is is_told


def test_a_full_queue_of_launches_is_a_wait_for_the_device(tmp_path: Path) -> None:

    def body(machine: Machine) -> None:
        compute(machine, 60, 100.0)

    run = build_window(tmp_path, body, steps=6, reads_loss=False)
    found = replay_rank(run.rank())
    assert found is not None
    assert found.is_valid
