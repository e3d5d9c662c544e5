"""What is said of runs that differ from a planted one in something that matters: read the golden file beside each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from profiler_server.diagnosis.judging import diagnose
from tests.support.cases import PLANTED, Plant, build_case_run, plan_of, slow
from tests.support.diagnosing import Golden, advise, measure, write_out
from tests.support.host_cases import CROWDED, ddp, host_samples, logged, open_files
from tests.support.own_work import MODULE, TRAINS, late, spend_operators
from tests.support.plants import A100
from tests.support.row_edits import (
    Row,
    act,
    compute_all,
    cpu_cores,
    evaluate,
    evaluate_in_passes,
    queued,
    roll_out,
    stall,
)
from tests.support.runs import HEALTHY_STEP_MS, MS, RunPlan
from tests.support.stacks import in_phase, in_stage, in_thread, library, own
from tests.support.varying import write_findings

TWO_CORES = {"usable_cores": 2.0, "cpu_count": 2, "torch_threads": 1}
FULL = plan_of(2, (4, 4, 4, 3), data_wait=40.0)
ITEM = own("Photos.__getitem__", 31, "data.py")
LATE = plan_of(4, data_wait=3.12, h2d=0.0, forward=1.0, backward=1.0, optimizer=0.3, tail=0.05)
IN_MEMORY = plan_of(0, data_wait=0.352, h2d=0.0, forward=0.6, backward=0.0, optimizer=0.05, tail=0.0, gap=0.0)
ROOMY = replace(PLANTED["too_few_workers"], manifest={"usable_cores": 16.0})
STARVED_UPDATE = replace(slow("read"), phases_ms={**plan_of(optimizer=40.0).phases_ms, "data_wait": 62.0})
LOOPED = {"facts": {"optimizers": [{"name": "AdamW", "foreach": False, "fused": None}]}}
FEW_TENSORS = {"facts": {"optimizers": [{"name": "AdamW", "foreach": False, "tensors": 6, "parameters": 60}]}}


def size(batch_bytes: int) -> Callable[[list[Row]], None]:
    def edit(stages: list[Row]) -> None:
        for row in stages:
            row["bytes"] = batch_bytes

    return edit


def move(by_ms: int) -> Callable[[list[Row]], None]:
    def edit(stages: list[Row]) -> None:
        for row in stages:
            row["start_ns"] += by_ms * MS

    return edit


def drop_empty(stages: list[Row]) -> None:
    stages[:] = [row for row in stages if row["duration_ns"]]


def open_many(stages: list[Row]) -> None:
    compute_all(stages)
    open_files(32 * 32, 8.0, 640)(stages)


def infer(steps: list[Row]) -> None:
    evaluate(steps)
    del steps[:100]


def forget_length(steps: list[Row]) -> None:
    for step in steps:
        step |= {name: 0 for name in step if name.endswith("_ns") and name != "start_ns"}


def unfed(steps: list[Row]) -> None:
    for row in steps:
        row |= {"data_wait_ns": 0, "fetches": 0, "gap_ns": row["gap_ns"] + row["data_wait_ns"]}


ASKING = {"source_lines": {"/home/me/train.py": {"60": "for rows in read_tables(paths):"}}}


def on(plant: Plant, *stacks: Row, **changes: Any) -> Plant:
    """Return the plant with these stacks."""
    train = in_phase("forward", 100, own("Net.forward", 7))
    return replace(plant, tables={**plant.tables, "stacks": late(train, *stacks)}, **changes)


def mine(*stacks: Row, forward_ms: float = 4.0, plan: RunPlan | None = None) -> Plant:
    """Return a run with these stacks, whose detailed steps spend so long in operators of the forward of 20 ms."""
    operators = spend_operators(forward=forward_ms, backward=30.0)
    return Plant(plan or plan_of(), tables={"stacks": late(*stacks, *TRAINS), "operators": operators})


def queue(share: float) -> Mapping[str, list[Row]]:
    """Let the training thread queue for a processor for this share of its time."""
    rows = cpu_cores(process=0.5, system=2.0, count=100)
    return {
        "resources": [
            *rows,
            *({**row, "metric": "run_queue_frac", "value": share} for row in rows if row["source"] == "process"),
        ]
    }


def sample_queue(missing_in_ten: int) -> Mapping[str, list[Row]]:
    """Sample a queue that is never empty, and lacks the next batch so often."""
    row = {"loader": 0, "queue": "worker_queue", "depth": 5, "capacity": 8, "out_of_order": 0}
    samples = [{**row, "step": n, "start_ns": n * MS, "next_ready": n % 10 >= missing_in_ten} for n in range(1, 101)]
    return {"queues": samples}


def trace(kind: str, steps: int = 6, **phases_ms: float) -> Plant:
    """Return some steps that another profiler recorded, and which iterator of a loader they show."""
    manifest = {"state": "imported", "loaders": (), "facts": {"data_loader": kind}}
    return Plant(replace(plan_of(2, (3, 4, 4, 3), **phases_ms), steps=steps), manifest=manifest)


def use(process: float, system: float) -> Mapping[str, list[Row]]:
    return {"resources": cpu_cores(process=process, system=system, count=200)}


def lone(cores: float) -> Plant:
    """Return a training that makes its own batches, which keeps one processor busy all the time."""
    manifest = {"usable_cores": cores, "cpu_count": int(cores), "torch_threads": 1}
    tables = {"resources": cpu_cores(process=0.97, system=0.98, count=400)}
    return Plant(plan_of(workers=0, data_wait=33.0), edit_stages=compute_all, manifest=manifest, tables=tables)


def anomaly(*stacks: Row, operators: bool = False) -> Plant:
    names = (("autograd::engine::evaluate_function: MulBackward0", 4), ("aten::isnan", 3), ("aten::_is_any_true", 2))
    rows = [
        {"step": 11, "name": name, "type": "other", "count": 200, "total_ns": ms * MS, "self_ns": ms * MS}
        | {"device_total_ns": 0, "device_self_ns": 0}
        for name, ms in names
    ]
    tables = {"stacks": late(*stacks), "operators": rows if operators else []}
    return Plant(manifest={"facts": {"anomaly_mode": True}}, tables=tables)


def timed(read_ms: float, collate_ms: float) -> Plant:
    plan = replace(IN_MEMORY, read_ms=read_ms, transform_ms=0.0, collate_ms=collate_ms)
    return Plant(plan, edit_stages=drop_empty)


MADE_IN_TIME = replace(LATE, read_ms=8.0, transform_ms=1.0, collate_ms=1.0)
"""Four workers that work 45 % of the time, and a step that waits for 56 % of it."""
GAP_ONLY = dict.fromkeys(HEALTHY_STEP_MS, 0.0) | {"backward": 0.8, "tail": 1.5}
SEVERAL = replace(PLANTED["watched_input"], plan=plan_of(workers=0, data_wait=200.0))
KEEPS = (library("format_stack", "torch/fx/traceback.py"), library("extract", "traceback.py"))
FORWARD = own("forward", 30, "model.py")
LOUD = [
    {"start_ns": 1_000 * MS + n * 10 * MS, "source": source, "metric": "cpu_cores", "value": value}
    for n in range(50)
    for source, value in (("process", 1.0), ("system", 3.8))
]
NO_QUEUES = [row for row in CROWDED if row["metric"] != "run_queue_frac"]
WAITS = replace(PLANTED["slow_transform"].plan, phases_ms=plan_of(data_wait=9.0).phases_ms, transform_ms=80.0)
STALLED = Plant(edit=stall(10, "tail", 120.0))

JUDGED: Mapping[str, Plant] = {
    "small batches are received": Plant(FULL, edit_stages=size(8 * 4096), manifest={"usable_cores": 4.0}),
    "large batches are received on a busy host": Plant(
        FULL, edit_stages=size(4 << 20), manifest={"usable_cores": 2.0}, tables=queue(0.1)
    ),
    "large batches are received": Plant(FULL, edit_stages=size(4 << 20)),
    "no processor is free": Plant(FULL, manifest={"usable_cores": 2.0}, tables=queue(0.67)),
    "no processor is free for a small wait": Plant(
        plan_of(2, (4, 4, 4, 3), data_wait=12.0), manifest={"usable_cores": 2.0}, tables=queue(0.3)
    ),
    "finished in time and seldom missing": Plant(MADE_IN_TIME, tables=sample_queue(1)),
    "finished in time and often missing": Plant(MADE_IN_TIME, tables=sample_queue(4)),
    "finished late": Plant(MADE_IN_TIME, edit_stages=move(3), tables=sample_queue(4)),
    "the loader takes longer than its stages": timed(0.082, 0.060),
    "the stages make up the wait": timed(0.22, 0.1),
    "no stages": Plant(plan_of(depths=(0, 0, 0, 1), data_wait=96.0), edit_stages=lambda rows: rows.clear()),
    "no window of a device": Plant(manifest={"devices": (A100,)}),
    "no settings of the optimizer": Plant(plan_of(optimizer=40.0)),
    "few steps": Plant(RunPlan(steps=8)),
    "no steps": Plant(RunPlan(steps=0, operators=False)),
    "steps without length": Plant(edit=forget_length),
    "only inference": Plant(edit=infer),
    "a short trace without workers": trace("single_process", data_wait=96.0),
    "a longer trace without workers": trace("single_process", steps=60, data_wait=96.0),
    "a short trace with workers": trace("workers", data_wait=96.0),
    "a short trace of a healthy loop": trace("single_process"),
    "code before workers": ROOMY,
    "an update beside a starving loop": Plant(STARVED_UPDATE, manifest=LOOPED),
    "a loop over few tensors": Plant(plan_of(optimizer=30.0), manifest=FEW_TENSORS),
    "a starving read on a busy host": replace(
        PLANTED["slow_read"], manifest=TWO_CORES, tables={"resources": queued(process=0.2, system=2.0, wait_frac=0.8)}
    ),
    "a doubtful transform": replace(PLANTED["slow_transform"], plan=WAITS, tables=use(0.5, 3.9)),
    "workers beyond the cores": replace(
        PLANTED["no_workers"],
        plan=replace(PLANTED["no_workers"].plan, transform_ms=300.0),
        edit_stages=compute_all,
        manifest={"usable_cores": 2.0},
    ),
    "stalls on a quiet host": STALLED,
    "stalls shorter than other phases": Plant(plan_of(backward=90.0), edit=stall(10, "tail", 120.0)),
    "gradients in one bucket": replace(PLANTED["bucket_size"], manifest={"facts": ddp(bucket_bytes=[90 << 20])}),
    "stalls on a busy host": replace(STALLED, tables={"resources": LOUD}),
    "other programs": Plant(manifest={"usable_cores": 4.0, "cpu_count": 4}, tables=use(1.0, 2.6)),
    "a gap on a busy host": Plant(plan_of(tail=25.0), manifest=TWO_CORES, tables=use(0.9, 3.9)),
    "memory is short on the host": Plant(tables={"resources": host_samples(system__memory_stall_frac=0.4)}),
    "a thread of unknown waits": Plant(tables={"resources": host_samples(process__python_threads_cores=0.6)}),
    "no workers on one core": lone(1.0),
    "no workers on four cores": lone(4.0),
    "crowded by reading": on(
        PLANTED["workers_take_processors"],
        in_stage("read", 90, own("Fields.__getitem__", 93, "data.py"), own("read_field", 46)),
        edit_stages=open_many,
    ),
    "crowded and nobody tells of queues": replace(PLANTED["workers_take_processors"], tables={"resources": NO_QUEUES}),
    "an iterable without workers": replace(PLANTED["no_workers"], loader={"style": "iterable"}),
    "a loader made anew": replace(PLANTED["worker_restart"], loader={"remade": 9, "persistent_workers": True}),
    "workers that do not persist": replace(PLANTED["too_few_workers"], loader={"persistent_workers": False}),
    "a reader that computes": replace(
        PLANTED["watched_input"], loader={**PLANTED["watched_input"].loader, "cpu_frac": 0.9}
    ),
    "a reader slower than the step": SEVERAL,
    "a rollout": Plant(edit=roll_out),
    "one pass of evaluation": Plant(edit=lambda steps: evaluate_in_passes(steps, 1)),
    "three passes of evaluation": Plant(edit=lambda steps: evaluate_in_passes(steps, 3)),
    "ten passes of evaluation": Plant(edit=lambda steps: evaluate_in_passes(steps, 10)),
    "a gap of one function": on(
        PLANTED["python_gap"],
        in_phase("tail", 61, own("accuracy", 88)),
        in_phase("tail", 30, own("log", 9)),
        in_phase("gap", 9),
    ),
    "a gap of logging": Plant(plan_of(tail=30.0), manifest={"facts": logged(25_000_000)}),
    "a gap of few samples": on(PLANTED["python_gap"], in_phase("tail", 12, own("accuracy", 88))),
    "an acting loop": Plant(plan_of(workers=0), edit=act),
    "an acting loop of one function": on(
        Plant(plan_of(workers=0), edit=act),
        in_phase("gap", 40, own("World.step", 37)),
        in_phase("gap", 2, own("log", 9)),
    ),
    "a thread that computes against the training": on(
        PLANTED["gil_contention"],
        in_thread("forward", 80, own("Live.run", 12), own("summarise", 30), stage="beside"),
        in_thread("forward", 20, own("Live.run", 12), stage="beside"),
    ),
    "a loop that asks for each batch": on(
        Plant(plan_of(workers=0, gap=30.0), edit=unfed, manifest={"facts": ASKING, "loaders": ()}),
        in_phase("gap", 40, own("read_rows", 37)),
        in_phase("gap", 2, own("log", 9)),
    ),
    "a gap of one function without an input": on(
        Plant(plan_of(workers=0, gap=30.0), edit=unfed, manifest={"loaders": ()}),
        in_phase("gap", 40, own("read_rows", 37)),
        in_phase("gap", 2, own("log", 9)),
    ),
    "stalls of one function": on(
        PLANTED["periodic_stall"], in_phase("tail", 90, own("save_grid", 21)), in_phase("tail", 5)
    ),
    "stalls beside what most steps do": on(
        Plant(plan_of(tail=60.0), edit=stall(10, "tail", 300.0)),
        in_phase("tail", 60, own("log", 9)),
        in_phase("tail", 40, own("save_grid", 21)),
    ),
    "reading in a library": on(
        PLANTED["slow_read"], in_stage("read", 80, ITEM, library("Image.open", "PIL/Image.py")), in_stage("read", 20)
    ),
    "reading by the line": on(PLANTED["slow_read"], in_stage("read", 80, ITEM), in_stage("read", 20, own("other", 3))),
    "reading in many functions": on(
        PLANTED["slow_read"], *(in_stage("read", 10, ITEM, own(f"part_{n}", n)) for n in range(4))
    ),
    "reading with few samples": on(PLANTED["slow_read"], in_stage("read", 12, ITEM, own("decode", 4))),
    "transforms in a library": on(
        PLANTED["slow_transform"], in_stage("transform", 80, own("Blur.__call__", 5), library("conv", "numpy/ma.py"))
    ),
    "collating in a function": on(PLANTED["slow_collate"], in_stage("collate", 80, own("gather", 3))),
    "a line that trains and computes": mine(
        in_phase("forward", 20, own("Trainer.update", 20), *MODULE), in_phase("forward", 80, own("Trainer.update", 22))
    ),
    "python outside of the computing": mine(in_phase("tail", 90, own("accuracy", 88)), plan=plan_of(tail=30.0)),
    "a brief step outside of training": Plant(replace(plan_of(), phases_ms={**GAP_ONLY, "forward": 0.7})),
    "a brief step without a forward": Plant(replace(plan_of(), phases_ms=GAP_ONLY)),
    "tracebacks that were sampled": anomaly(
        in_phase("forward", 600, FORWARD, *KEEPS), in_phase("forward", 400, FORWARD)
    ),
    "tracebacks by operators": anomaly(operators=True),
    "tracebacks that were not seen": anomaly(),
}


VARIED: Mapping[str, str] = {
    "gradients in one bucket": "bucket_size",
    "stalls shorter than other phases": "periodic_stall",
    "large batches are received": "ipc_bound",
    "a longer trace without workers": "no_workers",
    "a loop over few tensors": "optimizer_loop",
    "workers beyond the cores": "no_workers",
    "crowded by reading": "workers_take_processors",
    "a reader slower than the step": "watched_input",
    "three passes of evaluation": "validation_share",
    "ten passes of evaluation": "validation_share",
    "a gap of one function": "python_gap",
    "a gap of logging": "python_gap",
    "an acting loop": "python_gap",
    "an acting loop of one function": "python_gap",
    "stalls of one function": "periodic_stall",
    "reading in a library": "slow_read",
    "transforms in a library": "slow_transform",
    "collating in a function": "slow_collate",
    "a brief step outside of training": "python_gap",
    "tracebacks that were sampled": "debug_modes",
    "tracebacks by operators": "debug_modes",
}
"""Runs of which also the variants of one rule's facts are judged."""


@pytest.mark.parametrize("name", JUDGED)
def test_a_run_is_judged(name: str, tmp_path: Path, golden: Golden) -> None:
    run = build_case_run(tmp_path / "run", JUDGED[name])
    diagnosis = diagnose(run, 0)
    assert diagnosis.warnings == ()
    golden(f"judged/{name.replace(' ', '-')}", write_out(diagnosis))
    if name in VARIED:
        golden(f"facts/{name.replace(' ', '-')}", write_findings(measure(run), VARIED[name]))


def test_more_of_a_function_leaves_a_shorter_step_at_best(tmp_path: Path) -> None:
    steps = []
    for share in (55, 75, 95):
        rows = [in_stage("read", share, ITEM, own("decode", 4)), in_stage("read", 100 - share, ITEM, own("other", 9))]
        found = advise(tmp_path / str(share), on(PLANTED["slow_read"], *rows), "slow_read")
        steps.append(found.least_step_ns or 0.0)
    assert steps[0] >= steps[1] >= steps[2] > 0.0
    assert steps[0] > steps[2]
