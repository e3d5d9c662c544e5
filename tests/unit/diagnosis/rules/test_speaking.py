"""Of what a rule speaks and of what it does not, knob by knob: beside the two sides of each threshold (`edges`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from profiler_server.analysis.recorded_facts import read_unused_gradients
from profiler_server.diagnosis.judging import diagnose
from profiler_server.facts.case import Case
from profiler_server.facts.loading import Reading
from profiler_server.facts.machine import Gain
from tests.support import facts as make
from tests.support.cases import A100, PLANTED, Plant, build_case_run, plan_of, slow
from tests.support.diagnosing import Golden
from tests.support.host_cases import host_samples
from tests.support.row_edits import Row, compute_all, cpu_cores, slow_down
from tests.support.runs import MS
from tests.support.varying import write_findings
from tests.unit.diagnosis.edges.base import STEPS, base, starving
from tests.unit.diagnosis.edges.course import shift
from tests.unit.diagnosis.edges.loading import uneven
from tests.unit.diagnosis.edges.noted import untrained
from tests.unit.diagnosis.edges.window import holding, seeing

CROWDED = PLANTED["workers_take_processors"]
WATCHED = PLANTED["watched_input"]
TWO_CORES = {"usable_cores": 2.0, "cpu_count": 2}
LATER = np.arange(STEPS) >= STEPS // 2
GAIN = Gain(0.1, 0.2, 0.3)


def use(process: float, system: float, *more: Row) -> Mapping[str, list[Row]]:
    return {"resources": [*cpu_cores(process=process, system=system, count=200), *more]}


def wait(share: float, source: str = "process") -> list[Row]:
    """Let a process queue for this share of its time."""
    rows = cpu_cores(1.0, 1.0, count=200)[::2]
    return [{**row, "source": source, "metric": "run_queue_frac", "value": share} for row in rows]


def share_two_cores() -> Plant:
    """Four workers and the training on two cores: they wait for each other, and nobody else is there."""
    workers = [
        {**row, "source": f"worker {n}", "value": 0.37} for row in cpu_cores(1.0, 1.0, count=200)[::2] for n in range(4)
    ]
    tables = use(0.4, 1.95, *wait(0.8, "worker 0"), *wait(0.6), *workers)
    return Plant(replace(slow("transform"), workers=4), edit_stages=compute_all, manifest=TWO_CORES, tables=tables)


def grow(last: float, count: int = 100) -> Plant:
    """Steps that grow, on a host whose other programs use more and more over the same ten seconds."""
    rows = [
        {"start_ns": (1_000 + at * 100) * MS, "source": source, "metric": "cpu_cores", "value": value}
        for at in range(count)
        for source, value in (("process", 2.0), ("system", 2.1 + (last - 0.1) * at / count))
    ]
    return Plant(edit=slow_down, tables={"resources": rows})


def queue_longer() -> Plant:
    waits = [{**row, "value": 0.4 * at / 200} for at, row in enumerate(wait(1.0))]
    return Plant(edit=slow_down, tables={"resources": [*cpu_cores(process=2.0, system=2.1, count=100), *waits]})


def crowd(**samples: float) -> Plant:
    return replace(CROWDED, tables={"resources": host_samples(**samples)} if samples else {})


PLANTS: tuple[tuple[str, Plant, str, bool], ...] = (
    ("work that waits for its own processes is no noise", share_two_cores(), "noisy_host", False),
    (
        "programs on cores that the run may not use disturb nobody",
        Plant(manifest={"usable_cores": 2.0, "cpu_count": 64}, tables=use(1.9, 30.0)),
        "noisy_host",
        False,
    ),
    (
        "the other rank of the run is no other program",
        Plant(replace(plan_of(communication=2.0), ranks=2), manifest=TWO_CORES, tables=use(1.0, 2.05)),
        "noisy_host",
        False,
    ),
    ("steps that grow on a quiet host drift", PLANTED["drift"], "drift", True),
    ("steps that grow beside steady programs drift", grow(0.1), "drift", True),
    ("steps that grow with the load of the host do not drift", grow(1.2), "drift", False),
    ("a thread that waits longer for a processor does not drift", queue_longer(), "drift", False),
    ("nothing was sampled", crowd(), "workers_take_processors", False),
    ("batches are late", replace(CROWDED, plan=plan_of(data_wait=30.0)), "workers_take_processors", False),
    ("the step runs on a device", replace(CROWDED, manifest={"devices": (A100,)}), "workers_take_processors", False),
    (
        "other programs have the processors",
        crowd(process__cpu_cores=0.5, process__run_queue_frac=0.2, worker_0__cpu_cores=0.1, system__cpu_cores=2.0),
        "workers_take_processors",
        False,
    ),
    ("somebody reads ahead", replace(WATCHED, loader={**WATCHED.loader, "reads_ahead": True}), "watched_input", False),
    (
        "an earlier version does not say who reads",
        replace(WATCHED, loader={**WATCHED.loader, "reads_ahead": None}),
        "watched_input",
        False,
    ),
)


@pytest.mark.parametrize(("plant", "rule", "speaks"), [row[1:] for row in PLANTS], ids=[row[0] for row in PLANTS])
def test_a_recording_is_told_what_it_is(plant: Plant, rule: str, speaks: bool, tmp_path: Path) -> None:
    found = diagnose(build_case_run(tmp_path / "run", plant), 0)
    assert (rule in [entry.rule for entry in found.suggestions]) == speaks
    assert speaks or rule not in [entry.rule for entry in found.abstained]


def reading(**fields: object) -> Case:
    usual = Reading(100.0 * MS, 2, 0.4, 32.0, 1e6, 32.0, 1.0 * MS, 400.0 * MS, 100.0 * MS, None)
    return make.with_loading(starving(), reading=replace(usual, **fields))  # type: ignore[arg-type]


def queue_to_read(need: float) -> Case:
    return make.with_batches(make.with_jobs(reading(), 100.0 * MS, need), 400.0 * MS)


def read_few() -> Case:
    case = uneven(0.6)
    return make.with_loading(case, bottleneck=replace(case.loading.bottleneck, stage="read"))


def index() -> Case:
    """32 samples by one index operation in 0.3 ms for each 10 µs."""
    case = make.with_batches(make.with_loader(make.with_wait(base(), 0.4), batch_size=None), 0.3 * MS)
    return make.with_loading(case, bottleneck=replace(case.loading.bottleneck, stage="read"))


def hold(case: Case, peak: float | None) -> Case:
    return replace(case, device=replace(case.device, memory_peak_frac=peak))


def queue_to_launch(queued: float) -> Case:
    return make.with_load(make.with_device(base(), busy=0.5), queued_frac=queued)


def accumulate(peak: float) -> Case:
    return make.with_steps(make.with_device(base(), memory_peak_frac=peak), micro_batches=4)


def make_on_half_a_core(workers: int) -> Case:
    """A container that may use half a core, all of which making batches takes."""
    case = make.with_loader(make.with_jobs(starving(), 100.0 * MS, 0.9), num_workers=workers)
    case = make.with_load(make.with_model(case, workers=workers), system=0.5)
    return replace(case, host=replace(case.host, cores=0.5))


def note(gradients: object) -> Case:
    return replace(untrained(0.75), unused=read_unused_gradients({"unused_gradients": gradients}))


def shorten() -> Case:
    return make.with_durations(base(), lambda durations: durations * np.where(LATER, 0.5, 1.0))


def stay_long() -> Case:
    case = make.with_load(shift(0.375))
    return make.with_steps(case, selection=replace(case.steps.selection, regular=np.ones(STEPS, np.bool_)))


Rows = Mapping[str, tuple[tuple[Callable[[], Case], bool], ...]]
CASES: Rows = {
    "slow_read": (
        (read_few, False),
        (lambda: make.with_loader(read_few(), num_workers=1), True),
        (lambda: make.with_loader(read_few(), in_order=False), True),
        (index, False),
        (lambda: make.with_loader(index(), style="iterable"), True),
        (lambda: make.with_batches(index(), 30.0 * MS), True),
    ),
    "workers_capped_by_cores": ((lambda: make_on_half_a_core(1), True), (lambda: make_on_half_a_core(0), False)),
    "cold_cache": ((lambda: queue_to_read(0.2), True), (lambda: queue_to_read(0.9), False)),
    "shift": (
        (lambda: shift(0.375), True),
        (lambda: make.with_rows(shift(0.375), samples=np.where(LATER, 64, 32)), False),
        (shorten, False),
    ),
    "drift": ((stay_long, False),),
    "needless_grad": (
        *((lambda noted=noted: note(noted), False) for noted in (None, {}, {"parameters": "many", "updated": 1})),
        (lambda: note({"parameters": -5, "updated": 1}), False),
        (lambda: note({"parameters": 5, "updated": 0}), True),
        (lambda: seeing("recorded_gradients", share=0.9), True),
        (lambda: make.with_share(seeing("recorded_gradients", share=0.9), "backward", 0.3), False),
    ),
    "launch_thread_starved": ((lambda: queue_to_launch(0.5), True), (lambda: queue_to_launch(0.01), False)),
    "memory_unused": ((lambda: accumulate(0.3), True), (lambda: accumulate(0.8), False)),
    "needless_checkpointing": (
        (lambda: hold(seeing("checkpointing", GAIN), 0.3), True),
        (lambda: hold(seeing("checkpointing", GAIN), 0.9), False),
    ),
    "small_batch": ((lambda: holding(0.2), True), (lambda: holding(0.9), False)),
}


@pytest.mark.parametrize(
    ("name", "rule", "build", "speaks"),
    [
        (f"{rule}-{number}", rule, build, speaks)
        for rule, rows in CASES.items()
        for number, (build, speaks) in enumerate(rows, 1)
    ],
)
def test_a_rule_speaks_of_its_cause_and_of_nothing_else(
    name: str, rule: str, build: Callable[[], Case], speaks: bool, golden: Golden
) -> None:
    found = make.find(build(), rule)
    assert (found is not None) == speaks
    if speaks:
        assert found.evidence
        golden(f"facts/{name}", write_findings(build(), rule))


@pytest.mark.parametrize("at_once", [False, True])
def test_a_dataset_that_reads_whole_batches_does_not_fetch_one_by_one(at_once: bool) -> None:
    case = make.with_loader(make.with_jobs(reading(at_once=at_once), 0.01 * MS * 100, 1.0), batch_size=100)
    assert make.speaks(make.with_loading(case, batches=None), "in_memory_fetch") is not at_once
