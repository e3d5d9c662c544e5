"""One run of every kind that a page must be able to show, built in code: rich, empty, broken off, long, hostile, …"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from collector.format import parts
from collector.format.phases import PHASE_NAMES
from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.manifest import Loader, Warn, encode_manifest
from collector.traces.importing import import_trace
from tests.support.machines import build_machine, build_ranks
from tests.support.row_edits import evaluate, name_transforms, write_rows
from tests.support.runs import (
    HEALTHY_STEP_MS,
    MS,
    RunPlan,
    build_operators,
    build_run,
    build_stages,
    build_steps,
    slow_loader_plan,
)
from tests.support.stacks import in_phase, in_stage, library, own, write_stacks
from tests.support.traces import training_steps, write_trace

HOSTILE = '<script>alert("x")</script> & "quoted" \u202egnp.exe\u202c 🔥 ' + "long" * 2_500
"""A name as an attacker, or a template library, may write it: markup, right-to-left, an emoji, 10,000 letters."""
LONG_STEPS = 100_000


def build_rich(path: Path) -> None:
    """A GPU, memory, samples of the machine, named transforms, evaluation: nothing is missing."""
    build_machine(path)
    plan = RunPlan(steps=200)
    steps, stages = build_steps(plan), build_stages(build_steps(plan), plan)
    evaluate(steps)
    name_transforms(stages)
    folder = layout.rank_path(path, 0)
    write_rows(folder, "steps", steps)
    write_rows(folder, "stages", stages)
    item = own("Photos.__getitem__", 31, "data.py")
    write_stacks(
        path,
        [
            in_phase("forward", 400, library("Module._call_impl", "torch/nn/modules/module.py"), own("Net.forward", 7)),
            in_phase("tail", 61, own("accuracy", 88), own("top_k", 12)),
            in_phase("tail", 39, library("Logger.info", "loguru/_logger.py")),
            in_stage("read", 120, item, library("Image.resize", "PIL/Image.py")),
            in_stage("read", 40, item, own("decode", 44, "data.py")),
        ],
    )


def build_imported(path: Path) -> None:
    """A trace of another profiler, with kernels."""
    trace = write_trace(path.parent / f"{path.name}.json", training_steps(6, 20_000.0))
    import_trace(trace, path)
    trace.unlink()


def build_hostile(path: Path) -> None:
    """Every text that a run brings along is hostile."""
    plan = RunPlan()
    build_run(path, plan)
    folder = layout.rank_path(path, 0)
    operators = build_operators(build_steps(plan))
    for number, row in enumerate(operators):
        row |= {"name": f"{HOSTILE[: 60 + 400 * number]}{number}", "type": HOSTILE[:90], "input_shapes": HOSTILE}
    write_rows(folder, "operators", operators)
    frames = [own(f"{HOSTILE}{depth}", depth, HOSTILE) for depth in range(60)]
    write_stacks(path, [in_phase("forward", 90, *frames), in_stage("read", 90, *frames), in_phase("tail", 40, HOSTILE)])
    run = open_run(path)
    manifest = dataclasses.replace(run.manifest, name=HOSTILE, host=HOSTILE, script=HOSTILE, torch=HOSTILE[:200])
    loader = dataclasses.replace(run.rank(0).manifest.loaders[0], dataset=HOSTILE)
    rank = dataclasses.replace(
        run.rank(0).manifest,
        host=HOSTILE,
        forward_start=HOSTILE,
        backward_end=HOSTILE,
        loaders=(loader, Loader(1, HOSTILE, "map", batch_size=4)),
        warnings=(Warn("odd", HOSTILE),),
    )
    layout.run_file(path).write_text(encode_manifest(manifest), encoding="utf-8")
    layout.rank_file(path, 0).write_text(encode_manifest(rank), encoding="utf-8")


def build_long(path: Path, steps: int = LONG_STEPS) -> None:
    """Many steps, with their waits, queue and stages, written as columns."""
    build_run(path, RunPlan(steps=20))
    number = np.arange(1, steps + 1)
    wobble = 1.0 + 0.01 * ((number * 7) % 5 - 2)
    phases = {f"{name}_ns": (HEALTHY_STEP_MS[name] * MS * wobble).astype(np.int64) for name in PHASE_NAMES}
    phases["data_wait_ns"] += np.where(number % 5_000 == 0, 400 * MS, 0)
    duration = np.sum(list(phases.values()), axis=0)
    start = 1_000 * MS + np.concatenate([[0], np.cumsum(duration)[:-1]])
    kinds = {"kind": ["train"] * steps, "epoch": np.ones(steps, np.int32), "loader": np.zeros(steps, np.int32)}
    ones = {name: np.ones(steps, np.int32) for name in ("fetches", "forwards", "backwards", "optimizer_steps")}
    nothing = {name: np.zeros(steps, np.int64) for name in ("loader_start_ns", "gc_ns")}
    _write(
        path,
        "steps",
        {"index": number - 1, "step": number, "start_ns": start, "duration_ns": duration, "batch": number - 1}
        | {"samples": np.full(steps, 32), "skipped_updates": np.zeros(steps, np.int32)}
        | {"detailed": (number >= 10) & (number <= 12), "markers": np.zeros(steps, bool)}
        | {**kinds, **ones, **nothing, **phases},
    )
    empty = number % 5_000 == 0
    depth = {"depth": np.where(empty, 0, 3).astype(np.int32), "capacity": np.full(steps, 4, np.int32)}
    state = {
        "next_ready": ~empty,
        "out_of_order": np.zeros(steps, np.int32),
        "outstanding": np.full(steps, 4, np.int32),
    }
    names = {"loader": np.zeros(steps, np.int32), "queue": ["worker_queue"] * steps}
    _write(path, "queues", {"step": number, "start_ns": start, **names, **depth, **state})
    work = {"stage": ["transform"] * steps, "kind": ["work"] * steps, "replica": ((number - 1) % 2).astype(np.int32)}
    batch = {"loader": np.zeros(steps, np.int32), "epoch": np.ones(steps, np.int32), "batch": number - 1}
    times = {"start_ns": start, "duration_ns": np.full(steps, 20 * MS), "items": np.full(steps, 32, np.int32)}
    _write(path, "stages", {**work, **batch, **times})


def _write(path: Path, name: str, columns: Mapping[str, object]) -> None:
    parts.write_table(parts.build_table(name, columns), layout.table_file(layout.rank_path(path, 0), name))


PANORAMA: Mapping[str, Callable[[Path], object]] = {
    "rich": build_rich,
    "empty": lambda path: build_run(path, RunPlan(steps=0, operators=False)),
    "no-gpu": lambda path: build_run(path, slow_loader_plan("transform")),
    "ranks": lambda path: build_ranks(path, 8, slow=3),
    "crashed": lambda path: build_run(path, RunPlan(state="crashed", operators=False)),
    "imported": build_imported,
    "hostile": build_hostile,
    "long": build_long,
}
"""Kind of run -> what builds it at a path."""
