"""Rules that must not blame a host that is healthy, nor a run for what its host did."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from profiler_server.diagnosis.judging import diagnose
from tests.support.cases import PLANTED, Plant, build_case_run, plan_of, slow
from tests.support.host_cases import host_samples
from tests.support.row_edits import Row, compute_all, cpu_cores, slow_down
from tests.support.runs import MS


def list_rules(path: Path, plant: Plant) -> list[str]:
    return [entry.rule for entry in diagnose(build_case_run(path, plant), 0).suggestions]


def queued(share: float, source: str = "process") -> list[Row]:
    return [
        {"start_ns": row["start_ns"], "source": source, "metric": "run_queue_frac", "value": share}
        for row in cpu_cores(1.0, 1.0, count=200)[::2]
    ]


def test_what_a_noisy_host_is_judged_by_is_what_it_says(tmp_path: Path) -> None:
    used = cpu_cores(process=1.0, system=2.6, count=200)
    plant = Plant(manifest={"usable_cores": 4.0, "cpu_count": 4}, tables={"resources": used})
    found = diagnose(build_case_run(tmp_path / "run", plant), 0).suggestions[0]
    assert found.rule == "noisy_host"
    assert found.measured.startswith("Other programs used 1.6 of the 4 usable cores that this run may use (40.0 %)")


def test_work_that_waits_for_its_own_processes_is_no_noise(tmp_path: Path) -> None:
    """Four workers and the training share two cores: they wait for each other, and nobody else is there."""
    plan = dataclasses.replace(slow("transform"), workers=4)
    rows = [*cpu_cores(process=0.4, system=1.95, count=200), *queued(0.8, "worker 0"), *queued(0.6)]
    workers = [
        {**row, "source": f"worker {n}", "value": 0.37} for row in cpu_cores(1.0, 1.0, count=200)[::2] for n in range(4)
    ]
    plant = Plant(plan, edit_stages=compute_all, manifest={"usable_cores": 2.0, "cpu_count": 2})
    assert "noisy_host" not in list_rules(
        tmp_path / "run", dataclasses.replace(plant, tables={"resources": [*rows, *workers]})
    )


def test_programs_on_cores_that_the_run_may_not_use_disturb_nobody(tmp_path: Path) -> None:
    used = cpu_cores(process=1.9, system=30.0, count=200)
    plant = Plant(manifest={"usable_cores": 2.0, "cpu_count": 64}, tables={"resources": used})
    assert list_rules(tmp_path / "run", plant) == []


def test_the_other_rank_of_the_run_is_no_other_program(tmp_path: Path) -> None:
    used = cpu_cores(process=1.0, system=2.05, count=200)
    plan = dataclasses.replace(plan_of(communication=2.0), ranks=2)
    plant = Plant(plan, manifest={"usable_cores": 2.0, "cpu_count": 2}, tables={"resources": used})
    assert "noisy_host" not in list_rules(tmp_path / "run", plant)


def grow(first: float, last: float, count: int = 100) -> list[Row]:
    """Return the load of a host whose other programs use more and more, over the ten seconds of a drifting run."""
    rows = []
    for at in range(count):
        start_ns = 1_000 * MS + at * 100 * MS
        system = 2.0 + first + (last - first) * at / count
        for source, value in (("process", 2.0), ("system", system)):
            rows.append({"start_ns": start_ns, "source": source, "metric": "cpu_cores", "value": value})
    return rows


@pytest.mark.parametrize(("last", "drifts"), [(0.1, True), (1.2, False)])
def test_steps_that_grow_with_the_load_of_the_host_do_not_drift(last: float, drifts: bool, tmp_path: Path) -> None:
    plant = Plant(edit=slow_down, tables={"resources": grow(0.1, last)})
    assert ("drift" in list_rules(tmp_path / "run", plant)) == drifts


def test_a_thread_that_waits_longer_for_a_processor_does_not_drift(tmp_path: Path) -> None:
    waits = [{**row, "value": 0.4 * at / 200} for at, row in enumerate(queued(1.0)[:100])]
    rows = [*cpu_cores(process=2.0, system=2.1, count=100), *waits]
    assert list_rules(tmp_path / "run", Plant(edit=slow_down, tables={"resources": rows})) == []


def test_a_drift_on_a_quiet_host_is_still_told(tmp_path: Path) -> None:
    assert "drift" in list_rules(tmp_path / "run", PLANTED["drift"])


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
    found = next(e for e in diagnose(build_case_run(tmp_path / "run", plant), 0).suggestions if e.rule == "no_workers")
    assert (found.predicted_step_ns is not None, found.severity != "info") == (gains, gains)
    assert gains or "num_workers=0, and the one processor is busy 98.0 % of the time" in found.measured
