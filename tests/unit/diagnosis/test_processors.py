"""Workers, steps and other programs that want the same processors: what is said of them, and what is promised."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from profiler_server.analysis.data.prediction import predict_step
from profiler_server.diagnosis.deriving import choose_workers
from profiler_server.diagnosis.judging import diagnose
from profiler_server.facts.results import Diagnosis
from tests.support import facts as make
from tests.support.cases import PLANTED, Plant, build_case_run, plan_of
from tests.support.diagnosing import advise, diagnose_plant, measure, promise
from tests.support.host_cases import CROWDED, host_samples, open_files
from tests.support.row_edits import Row, compute_all, cpu_cores, queued, stall
from tests.support.runs import MS
from tests.support.stacks import in_phase, in_stage, own, write_stacks

RULE = "workers_take_processors"
PLANT = PLANTED[RULE]


def rules_of(diagnosis: Diagnosis) -> list[str]:
    return [entry.rule for entry in diagnosis.suggestions]


def test_the_work_of_a_sample_is_named_and_its_absence_predicted(tmp_path: Path) -> None:
    def edit(stages: list[Row]) -> None:
        compute_all(stages)
        open_files(32 * 32, 8.0, 640)(stages)

    run = build_case_run(tmp_path / "run", dataclasses.replace(PLANT, edit_stages=edit))
    item = own("Fields.__getitem__", 93, "data.py")
    write_stacks(
        tmp_path / "run",
        [in_phase("forward", 100, own("Net.forward", 7)), in_stage("read", 90, item, own("read_field", 46))],
    )
    (said,) = diagnose(run, 0).suggestions
    assert said.rule == RULE
    assert said.title == "The workers take processors that the step needs: read_field()"
    assert "queues for one 20.0 % of its time" in said.measured
    assert "reading" in said.measured
    assert "files of 640 B each" in said.measured
    step_ns = run.rank(0).table("steps").to_pandas()["duration_ns"].mean()
    assert said.predicted_low_ns is not None
    assert said.predicted_step_ns is not None
    waited_ns = 0.5 * MS  # goes with the queueing, and nothing else
    assert 0.8 * step_ns - waited_ns <= said.predicted_low_ns <= said.predicted_step_ns < step_ns


def test_the_rule_says_what_it_lacks_where_nobody_tells_of_queues(tmp_path: Path) -> None:
    told = [row for row in CROWDED if row["metric"] != "run_queue_frac"]
    diagnosis = diagnose(build_case_run(tmp_path / "run", dataclasses.replace(PLANT, tables={"resources": told})), 0)
    assert RULE not in rules_of(diagnosis)
    assert RULE in [entry.rule for entry in diagnosis.abstained]


def test_fewer_workers_are_not_proposed_by_a_simulation_that_is_off(tmp_path: Path) -> None:
    case = measure(build_case_run(tmp_path / "run", PLANTED["oversubscribed_workers"]))
    assert make.speaks(make.with_loop(case, check=1.0), "oversubscribed_workers")
    assert not make.speaks(make.with_loop(case, check=0.85), "oversubscribed_workers")
    assert not make.speaks(make.with_loop(case, check=1.2), "oversubscribed_workers")


def test_without_a_simulation_to_trust_workers_are_as_many_as_make_a_batch_per_step(tmp_path: Path) -> None:
    roomy = dataclasses.replace(PLANTED["too_few_workers"], manifest={"usable_cores": 16.0})
    case = make.with_loop(measure(build_case_run(tmp_path / "run", roomy)), check=0.8)
    choice = choose_workers(case)
    own_ns = case.loading.loop.regular_step_ns - case.loading.wait_ns
    assert (choice.workers - 1) * own_ns < case.loading.batch_ns <= choice.workers * own_ns
    assert "simulat" not in choice.reason
    assert "3 %" not in choice.reason
    assert "within 3 % of the best" in choose_workers(make.with_loop(case, check=1.0)).reason


def test_the_lower_end_of_faster_reading_is_a_step_that_reads_nothing(tmp_path: Path) -> None:
    case = measure(build_case_run(tmp_path / "run", PLANTED["slow_read"]))
    claim = promise(case, "slow_read")
    what_if = claim.finding.what_if
    assert what_if is not None
    assert what_if.best is not None
    nothing_ns = predict_step(case.loading.loop, what_if.best(case.loading.loop.model))
    floor_ns = case.steps.mean_ns - sum(what_if.touches.values())
    assert claim.low_ns <= max(nothing_ns, floor_ns) + 1
    assert claim.low_ns < claim.step_ns
    assert claim.low_ns >= floor_ns - 1


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
    assert collate.predicted_step_ns == pytest.approx(60 * MS, rel=0.06)


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


def test_waiting_is_not_scaled_to_a_quiet_host(tmp_path: Path) -> None:
    """Only the time on a processor was stretched by others: what sleeps, sleeps as long on a quiet host."""
    plan = plan_of(0, data_wait=36.0, forward=41.0, backward=1.5, optimizer=0.5, tail=0.5)
    rows = cpu_cores(process=0.25, system=2.0, count=100)
    waits = [{**row, "metric": "run_queue_frac", "value": 0.3} for row in rows if row["source"] == "process"]
    plant = Plant(plan, edit_stages=compute_all, manifest=TWO_CORES, tables={"resources": [*rows, *waits]})
    run = build_case_run(tmp_path / "run", plant)
    case = measure(run)
    assert case.loading.loop.model.steps[0].wall_ns > 40 * MS


BUSY = cpu_cores(process=0.5, system=3.9, count=200)


@pytest.mark.parametrize("stage", ["read", "transform", "collate"])
def test_a_starved_step_on_a_busy_host_still_gets_its_stage_named(stage: str, tmp_path: Path) -> None:
    plant = PLANTED[f"slow_{stage}"]
    # It queues for four fifths of its time, which is more than two other programs on two cores explain.
    queues = {"resources": queued(process=0.2, system=2.0, wait_frac=0.8)}
    loud = dataclasses.replace(plant, manifest={"usable_cores": 2.0, "torch_threads": 1}, tables=queues)
    found = {s.rule: s for s in diagnose_plant(tmp_path / "run", loud).suggestions}
    assert found[f"slow_{stage}"].predicted_step_ns is None
    assert "of its measured step: too far off to predict a step time." in found[f"slow_{stage}"].advice


def test_a_doubtful_suggestion_says_why_and_is_not_severe(tmp_path: Path) -> None:
    waits = dataclasses.replace(PLANTED["slow_transform"].plan, phases_ms=plan_of(data_wait=9.0).phases_ms)
    plan = dataclasses.replace(waits, transform_ms=80.0)
    plant = dataclasses.replace(PLANTED["slow_transform"], plan=plan, tables={"resources": BUSY})
    said = advise(tmp_path / "run", plant, "slow_transform")
    assert "Lower confidence: other programs used 1.4 of 2 cores" in said.advice
    assert said.severity in ("medium", "low")


@pytest.mark.parametrize("stage", ["read", "transform", "collate"])
def test_a_stage_suggestion_states_what_it_assumes(stage: str, tmp_path: Path) -> None:
    diagnosis = diagnose_plant(tmp_path / "run", PLANTED[f"slow_{stage}"])
    assert "The prediction holds if " in diagnosis.suggestions[0].advice
    assert " took " in diagnosis.sentence.split("stage. If ")[1]


def test_workers_that_compute_are_not_asked_for_beyond_the_cores(tmp_path: Path) -> None:
    plant = dataclasses.replace(PLANTED["no_workers"], edit_stages=compute_all, manifest={"usable_cores": 2.0})
    plan = dataclasses.replace(plant.plan, transform_ms=300.0)
    said = diagnose_plant(tmp_path / "run", dataclasses.replace(plant, plan=plan)).suggestions
    changes = [s.change for s in said if s.rule == "no_workers"]
    assert all("num_workers=1," in change or "num_workers=2," in change for change in changes)
    assert changes


def test_a_contended_host_raises_the_bar(tmp_path: Path) -> None:
    plant = Plant(edit=stall(10, "tail", 120.0))
    quiet = diagnose_plant(tmp_path / "a", plant)
    assert [s.rule for s in quiet.suggestions] == ["periodic_stall"]
    rows = [
        {"start_ns": 1_000 * MS + n * 10 * MS, "source": source, "metric": "cpu_cores", "value": value}
        for n in range(50)
        for source, value in (("process", 1.0), ("system", 3.8))
    ]
    loud = diagnose_plant(tmp_path / "b", dataclasses.replace(plant, tables={"resources": rows}))
    assert [s.rule for s in loud.suggestions] == ["noisy_host"]


def test_what_a_noisy_host_is_judged_by_is_what_it_says(tmp_path: Path) -> None:
    used = cpu_cores(process=1.0, system=2.6, count=200)
    plant = Plant(manifest={"usable_cores": 4.0, "cpu_count": 4}, tables={"resources": used})
    found = diagnose(build_case_run(tmp_path / "run", plant), 0).suggestions[0]
    assert found.rule == "noisy_host"
    assert found.measured.startswith("Other programs used 1.6 of the 4 usable cores that this run may use (40.0 %)")


def test_a_gap_that_takes_a_large_part_of_the_step_is_told_on_a_busy_host_too(tmp_path: Path) -> None:
    used = cpu_cores(process=0.9, system=3.9, count=200)
    plant = Plant(plan_of(tail=25.0), manifest={"usable_cores": 2.0, "cpu_count": 2}, tables={"resources": used})
    found = diagnose(build_case_run(tmp_path / "run", plant), 0).suggestions[0]
    assert (found.rule, found.severity) == ("python_gap", "medium")
    assert "Lower confidence: other programs used 3.0 of 2 cores" in found.advice


def test_memory_that_is_short_on_the_whole_host_promises_nothing(tmp_path: Path) -> None:
    """Another program may be the one that waits."""
    plant = Plant(tables={"resources": host_samples(system__memory_stall_frac=0.4)})
    (said,) = diagnose(build_case_run(tmp_path / "run", plant), 0).suggestions
    assert (said.rule, said.severity, said.predicted_step_ns) == ("memory_pressure", "info", None)
    assert "this training or another program" in said.measured


def test_a_thread_that_waits_for_an_unknown_reason_is_asked_about(tmp_path: Path) -> None:
    plant = Plant(tables={"resources": host_samples(process__python_threads_cores=0.6)})
    diagnosis = diagnose(build_case_run(tmp_path / "run", plant), 0)
    assert [entry.rule for entry in diagnosis.abstained] == ["gil_contention"]
    assert diagnosis.suggestions == ()


@pytest.mark.parametrize(("cores", "gains"), [(1.0, False), (4.0, True)])
def test_without_free_processors_it_is_a_fact_that_workers_gain_nothing(
    cores: float, gains: bool, tmp_path: Path
) -> None:
    """The training makes its own batches, which keeps one processor busy all the time."""
    plant = Plant(
        plan_of(workers=0, data_wait=33.0),
        edit_stages=compute_all,
        manifest={"usable_cores": cores, "cpu_count": int(cores), "torch_threads": 1},
        tables={"resources": cpu_cores(process=0.97, system=0.98, count=400)},
    )
    found = advise(tmp_path / "run", plant, "no_workers")
    assert (found.predicted_step_ns is not None, found.severity != "info") == (gains, gains)
    assert gains or "num_workers=0, and the one processor is busy 98.0 % of the time" in found.measured
