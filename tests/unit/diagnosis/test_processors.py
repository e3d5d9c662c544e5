"""Workers, steps and other programs that want the same processors: what is said of them, and what is promised."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pytest

from profiler_server.analysis.data.prediction import predict_step
from profiler_server.analysis.data.queues import summarize_readiness
from profiler_server.diagnosis.bottleneck import find_bottleneck
from profiler_server.diagnosis.deriving import choose_workers
from profiler_server.diagnosis.judging import diagnose
from tests.support import facts as make
from tests.support.cases import PLANTED, Plant, build_case_run, plan_of
from tests.support.diagnosing import measure, promise
from tests.support.must import must
from tests.support.row_edits import Row, compute_all, cpu_cores
from tests.support.runs import MS


def test_fewer_workers_are_not_proposed_by_a_simulation_that_is_off(tmp_path: Path) -> None:
    case = measure(build_case_run(tmp_path / "run", PLANTED["oversubscribed_workers"]))
    assert make.speaks(make.with_loop(case, check=1.0), "oversubscribed_workers")
    assert not make.speaks(make.with_loop(case, check=0.85), "oversubscribed_workers")
    assert not make.speaks(make.with_loop(case, check=1.2), "oversubscribed_workers")


@pytest.mark.parametrize(("threads", "cores", "is_named"), [(1, 0.4, False), (2, 0.4, True), (4, 3.6, False)])
def test_threads_are_compared_with_whole_cores(threads: int, cores: float, is_named: bool, tmp_path: Path) -> None:
    plant = Plant(manifest={"torch_threads": threads, "usable_cores": cores})
    assert make.speaks(measure(build_case_run(tmp_path / "run", plant)), "threads_over_cores") is is_named


def test_without_a_simulation_to_trust_workers_are_as_many_as_make_a_batch_per_step(tmp_path: Path) -> None:
    roomy = dataclasses.replace(PLANTED["too_few_workers"], manifest={"usable_cores": 16.0})
    case = make.with_loop(measure(build_case_run(tmp_path / "run", roomy)), check=0.8)
    choice = choose_workers(case)
    own_ns = case.loading.loop.regular_step_ns - case.loading.wait_ns
    assert (choice.workers - 1) * own_ns < case.loading.batch_ns <= choice.workers * own_ns
    assert "simulat" not in choice.reason
    assert "3 %" not in choice.reason
    assert "within 3 % of the best" in choose_workers(make.with_loop(case, check=1.0)).reason


def test_faster_reading_is_predicted_as_a_step_that_reads_nothing(tmp_path: Path) -> None:
    case = measure(build_case_run(tmp_path / "run", PLANTED["slow_read"]))
    claim = promise(case, "slow_read")
    what_if = claim.finding.what_if
    assert what_if is not None
    assert what_if.full is not None
    nothing_ns = predict_step(case.loading.loop, what_if.full(case.loading.loop.model))
    floor_ns = case.steps.mean_ns - sum(what_if.touches.values())
    assert claim.step_ns == pytest.approx(max(nothing_ns, floor_ns))
    assert claim.step_ns < claim.usual_ns
    assert floor_ns - 1 <= claim.low_ns <= claim.step_ns


@pytest.mark.parametrize("collected_ms", [0.0, 24.0])
def test_garbage_that_the_gap_makes_is_collected_at_its_expense(collected_ms: float, tmp_path: Path) -> None:
    def collect(steps: list[Row]) -> None:
        for step in steps[::3]:
            step["gap_ns"] += int(collected_ms * MS)
            step["gc_ns"] = int(collected_ms * MS)

    case = measure(build_case_run(tmp_path / "run", Plant(plan_of(gap=30.0), edit=collect)))
    rest_ns = case.steps.mean_ns - case.steps.phases_ns["gap"] - case.steps.phases_ns["tail"]
    claim = promise(case, "python_gap")
    # A fiftieth of the gap is left; what a step spends beside it in the median, such as its tail, hardly counts.
    assert claim.step_ns == pytest.approx(rest_ns + case.steps.phases_ns["gap"] / 50, rel=0.03)


def test_stalls_in_the_gap_are_no_usual_work(tmp_path: Path) -> None:
    def stall(steps: list[Row]) -> None:
        for step in steps[::10]:
            step["gap_ns"] += 300 * MS

    case = measure(build_case_run(tmp_path / "run", Plant(plan_of(gap=30.0), edit=stall)))
    usual = case.steps.mean_ns - promise(case, "python_gap").step_ns
    assert usual == pytest.approx(31.0 * MS, rel=0.05)


TWO_CORES = {"usable_cores": 2.0, "torch_threads": 2}


def sleep_all(stages: list[Row]) -> None:
    """All of the work waits: 0.3 % of it is on a processor."""
    for row in stages:
        if row["kind"] == "work":
            row["cpu_ns"] = row["duration_ns"] * 3 // 1000


def sleepy_plant(others: float) -> Plant:
    """Two workers whose collate sleeps for 325 ms, and a step of 60 ms that sleeps, too."""
    phases = {"data_wait": 100.0, "forward": 57.0, "backward": 1.0, "optimizer": 0.5, "tail": 0.5}
    plan = plan_of(2, (0, 0, 0, 1), **phases)
    plan = dataclasses.replace(plan, read_ms=0.1, transform_ms=0.1, collate_ms=325.0)
    used = cpu_cores(process=0.03, system=0.04 + others, count=200)
    return Plant(plan, edit_stages=sleep_all, manifest=TWO_CORES, tables={"resources": used})


@pytest.mark.parametrize("others", [0.0, 1.9])
def test_sleeping_workers_are_as_many_as_it_takes_on_two_cores(others: float, tmp_path: Path) -> None:
    found = diagnose(build_case_run(tmp_path / "run", sleepy_plant(others)), 0).suggestions
    workers = next(entry for entry in found if entry.rule == "too_few_workers")
    assert "num_workers=6,  # was 2" in workers.change
    assert "More workers than cores are right here: they wait rather than compute." in workers.advice
    assert workers.predicted_step_ns == pytest.approx(60 * MS, rel=0.06)


def test_a_sleeping_collate_that_goes_leaves_the_step_without_its_wait(tmp_path: Path) -> None:
    found = diagnose(build_case_run(tmp_path / "run", sleepy_plant(1.9)), 0).suggestions
    collate = next(entry for entry in found if entry.rule == "slow_collate")
    assert collate.least_step_ns == pytest.approx(60 * MS, rel=0.06)


def test_a_step_that_sleeps_leaves_its_core_to_the_workers(tmp_path: Path) -> None:
    """36 ms of decoding on the training thread, 40 ms of a step in which it sleeps: one worker hides all of it."""
    plan = plan_of(0, data_wait=36.0, forward=41.0, backward=1.5, optimizer=0.5, tail=0.5)
    plan = dataclasses.replace(plan, read_ms=34.0, transform_ms=1.0, collate_ms=1.0)
    # 39.5 of 80 ms are on a processor.
    used = cpu_cores(process=0.49, system=0.6, count=100)
    plant = Plant(plan, edit_stages=compute_all, manifest=TWO_CORES, tables={"resources": used})
    run = build_case_run(tmp_path / "run", plant)
    case = measure(run)
    assert case.loading.loop.model.steps[0].cores < 0.15
    first = diagnose(run, 0).suggestions[0]
    assert first.rule == "no_workers"
    assert "More workers than cores" not in first.advice
    assert first.predicted_step_ns == pytest.approx(44.1 * MS, rel=0.04)


def test_threads_that_make_a_batch_take_processors_from_workers_that_would(tmp_path: Path) -> None:
    """80 ms of a batch in which the training thread sleeps while its process uses a processor: 40 ms on two of them."""
    plan = plan_of(0, data_wait=80.0, forward=6.0, backward=3.0, optimizer=0.5, tail=0.5)
    plan = dataclasses.replace(plan, read_ms=78.0, transform_ms=1.0, collate_ms=1.0)
    predicted = []
    for process in (0.1, 1.0):
        used = cpu_cores(process=process, system=process + 0.05, count=100)
        plant = Plant(plan, edit_stages=sleep_all, manifest=TWO_CORES, tables={"resources": used})
        found = diagnose(build_case_run(tmp_path / f"run-{process}", plant), 0).suggestions
        workers = next(entry for entry in found if entry.rule == "no_workers")
        predicted.append(must(workers.predicted_step_ns))
    assert predicted[0] < 20 * MS
    assert 32 * MS < predicted[1] < 60 * MS


def test_waiting_is_not_scaled_to_a_quiet_host(tmp_path: Path) -> None:
    """Only the time on a processor was stretched by others: what sleeps, sleeps as long on a quiet host."""
    plan = plan_of(0, data_wait=36.0, forward=41.0, backward=1.5, optimizer=0.5, tail=0.5)
    rows = cpu_cores(process=0.25, system=2.0, count=100)
    waits = [{**row, "metric": "run_queue_frac", "value": 0.3} for row in rows if row["source"] == "process"]
    plant = Plant(plan, edit_stages=compute_all, manifest=TWO_CORES, tables={"resources": [*rows, *waits]})
    run = build_case_run(tmp_path / "run", plant)
    case = measure(run)
    assert case.loading.loop.model.steps[0].wall_ns > 40 * MS


WORK = {"read": 10.0, "transform": 80.0, "collate": 3.0}


def test_a_queue_that_holds_only_later_batches_is_told_by_the_wait() -> None:
    """Whether the next batch was ready is not seen while the queue holds others: one that took long was missing."""
    unseen = [n in (5, 15) for n in range(20)]
    samples = pa.table(
        {
            "step": list(range(20)),
            "loader": [0] * 20,
            "queue": ["worker_queue"] * 20,
            "depth": [4] * 20,
            "next_ready": pa.array([None if hidden else True for hidden in unseen], pa.bool_()),
            "out_of_order": [0] * 20,
        }
    )
    waits = [2_000_000_000 if n == 5 else 300_000 for n in range(20)]
    (found,) = summarize_readiness(samples, 0, pa.table({"step": list(range(20)), "data_wait_ns": waits}))
    assert found.not_ready_frac == pytest.approx(1 / 20)
    assert found.held_up_frac == pytest.approx(1 / 20)
    assert find_bottleneck([found], WORK, 0.6).cause == "making"
