"""Rules that say what a window shows without a step time: when they speak, when not, and what they lack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from profiler_server.analysis.replay.reading import replay_rank
from profiler_server.facts.case import Case
from profiler_server.facts.machine import Gain, Replayed
from profiler_server.facts.results import Abstention
from tests.support import facts as make
from tests.support.window_cases import OF_WINDOWS, WINDOW_CASES
from tests.support.windows import Machine, build_window, compute
from tests.unit.diagnosis.edges.base import base
from tests.unit.diagnosis.edges.window import holding, seeing

GAIN = Gain(0.1, 0.2, 0.3)


def starving(queued: float) -> Case:
    return make.with_load(make.with_device(base(), busy=0.5), queued_frac=queued)


def accumulating(parts: int, peak: float) -> Case:
    return make.with_steps(make.with_device(base(), memory_peak_frac=peak), micro_batches=parts)


def checkpointing(peak: float | None) -> Case:
    case = seeing("checkpointing", GAIN)
    return replace(case, device=replace(case.device, memory_peak_frac=peak))


def convolving(setting: object) -> Case:
    return make.with_manifest(seeing("convolutions", share=0.9), facts={"cudnn_benchmark": setting})


SPEAKING: Mapping[str, Callable[[], Case]] = {
    "cudnn_benchmark_off": lambda: convolving(False),
    "launch_thread_starved": lambda: starving(0.5),
    "memory_unused": lambda: accumulating(4, 0.3),
    "needless_checkpointing": lambda: checkpointing(0.3),
    "needless_grad": lambda: seeing("recorded_gradients", share=0.9),
    "small_batch": lambda: holding(0.2),
}
SILENT: Mapping[str, Callable[[], Case]] = {
    "cudnn_benchmark_off": lambda: convolving(True),
    "launch_thread_starved": lambda: starving(0.01),
    "memory_unused": lambda: accumulating(4, 0.8),
    "needless_checkpointing": lambda: checkpointing(0.9),
    "needless_grad": lambda: make.with_share(seeing("recorded_gradients", share=0.9), "backward", 0.3),
    "small_batch": lambda: holding(0.9),
}


@pytest.mark.parametrize("rule", OF_WINDOWS)
def test_a_rule_speaks_of_its_cause(rule: str) -> None:
    found = make.find(SPEAKING[rule](), rule)
    assert all((found.title, found.measured, found.threshold, found.advice, found.change, found.evidence))


@pytest.mark.parametrize("rule", OF_WINDOWS)
def test_a_rule_is_silent_without_it(rule: str) -> None:
    assert make.find(SILENT[rule](), rule) is None


@pytest.mark.parametrize("rule", [*WINDOW_CASES, "cudnn_benchmark_off"])
def test_a_rule_without_a_window_says_what_it_lacks(rule: str) -> None:
    found = make.find(make.with_device(base()), rule)
    assert isinstance(found, Abstention)
    assert found.rule == rule
    assert "which call launched" in found.missing


@pytest.mark.parametrize(("case", "missing"), [(convolving("?"), "cudnn.benchmark"), (checkpointing(None), "memory")])
def test_what_a_trace_cannot_know_is_asked_for(case: Case, missing: str) -> None:
    rule = "cudnn_benchmark_off" if "cudnn" in missing else "needless_checkpointing"
    found = make.find(case, rule)
    assert isinstance(found, Abstention)
    assert missing in found.missing


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
    same = Replayed(5, 0, 100, 5 * step_ns, 5 * step_ns, seen=case.device.replay.seen)
    longer = replace(same, measured_ns=5.4 * step_ns, replayed_ns=5.4 * step_ns)
    lows = []
    for replay in (same, longer):
        found = make.find(replace(case, device=replace(case.device, replay=replay)), "sync_points")
        lows.append(found.gain_range[0])
    assert lows[0] == pytest.approx(0.5)
    assert 0.0 < lows[1] < 0.25


def test_a_device_without_launches_has_no_replay(tmp_path: Path) -> None:
    run = build_window(tmp_path, lambda machine: machine.work(1_000.0), steps=3)

    assert replay_rank(run.rank()) is None


def test_a_full_queue_of_launches_is_a_wait_for_the_device(tmp_path: Path) -> None:

    def body(machine: Machine) -> None:
        compute(machine, 60, 100.0)

    run = build_window(tmp_path, body, steps=6, reads_loss=False)
    found = replay_rank(run.rank())
    assert found is not None
    assert found.is_valid
