"""What recording costs is measured in the run itself, with an interval, and its share is of the mean step it stands beside."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from collector.format.steps import summarize_steps
from collector.session import rehearsal
from collector.session.rehearsal import CostSampler
from collector.sidecar.rank_manifest import measure_overhead
from profiler_server.report.building import build_report
from tests.support import shapes
from tests.support.recording import Recorded, assert_sound, record

CALLS = {"fetch": 100, "forward": 200, "backward": 100, "update": 100, "zero": 100}


def train() -> None:
    model = shapes.Net()
    optimizer = shapes.sgd(model)
    for _ in range(8):
        shapes.train_on(model, optimizer, shapes.loader())


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recorded, list[int]]:
    """A training whose hooks are timed without a pause, and the steps behind which they were."""
    sample = CostSampler.sample
    steps: list[int] = []

    def follow(sampler: CostSampler, step: int) -> bool:
        taken = sampler._taken
        kept = sample(sampler, step)
        steps.extend([step] * (sampler._taken - taken))
        return kept

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rehearsal, "EARLY_NS", 0)
        patch.setattr(CostSampler, "sample", follow)
        return record(tmp_path_factory.mktemp("cost"), train), steps


def test_a_run_has_the_cost_of_its_own_hooks_within_bounds(sampled: tuple[Recorded, list[int]]) -> None:
    recorded, _ = sampled
    assert_sound(recorded)
    cost = recorded.run.rank().manifest.overhead
    assert cost.training_thread_ns_per_step is not None
    assert cost.training_thread_low_ns_per_step is not None
    assert cost.training_thread_high_ns_per_step is not None
    assert 0 < cost.training_thread_low_ns_per_step <= cost.training_thread_ns_per_step
    assert cost.training_thread_ns_per_step <= cost.training_thread_high_ns_per_step
    assert "times in this run" in cost.how
    mean = summarize_steps(recorded.run.table("steps")).duration_ns
    assert mean is not None
    assert cost.share_frac == pytest.approx(cost.training_thread_ns_per_step / mean.mean)
    reported = build_report(recorded.run)["overhead"]
    assert reported["training_thread_low_ns_per_step"] == round(cost.training_thread_low_ns_per_step)
    assert reported["training_thread_high_ns_per_step"] == round(cost.training_thread_high_ns_per_step)


def test_no_step_carries_the_time_in_which_a_hook_was_timed(sampled: tuple[Recorded, list[int]]) -> None:
    recorded, steps = sampled
    rests = [row["step"] for row in recorded.rows if row["kind"] == "rest"]
    assert steps
    assert set(steps) <= set(rests)


def test_no_step_carries_a_look_between_steps_of_a_tenth_of_a_millisecond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []

    def spin(sampler: CostSampler, step: int) -> bool:
        end = time.perf_counter_ns() + 100_000
        while time.perf_counter_ns() < end:
            pass
        steps.append(step)
        return False

    monkeypatch.setattr(CostSampler, "sample", spin)
    recorded = record(tmp_path, train)
    assert len(steps) >= 5
    assert set(steps) <= {row["step"] for row in recorded.rows if row["kind"] == "rest"}


def test_the_cost_of_a_step_is_the_sum_over_its_calls_and_its_bounds_add_up_as_errors_do() -> None:
    described = {"cost": {"calls": CALLS, "steps": 100, "train_ns": 10_000_000}, "mean_step_ns": 50_000.0}
    hooks = {name: [1000.0, 900.0, 1200.0] for name in CALLS}
    found = measure_overhead({"hook_ns": hooks, "how": "timed"}, described, (), None)
    assert found.training_thread_ns_per_step == pytest.approx(6000)
    assert found.share_frac == pytest.approx(0.12)
    assert found.training_thread_low_ns_per_step == pytest.approx(6000 - 100 * 8**0.5)
    assert found.training_thread_high_ns_per_step == pytest.approx(6000 + 200 * 8**0.5)
