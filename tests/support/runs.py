"""Small runs built in code, so that the server can be tested without a training run.

Every table goes through its declaration, so a run built here is a valid run of the format.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collector.format import parts
from collector.format.phases import PHASE_NAMES
from collector.format.schema import layout
from collector.format.schema.manifest import (
    Loader,
    Overhead,
    RankManifest,
    RunManifest,
    Signal,
    Window,
    encode_manifest,
)

EPOCH_UNIX_NS = 1_780_000_000_000_000_000
MS = 1_000_000

HEALTHY_STEP_MS: Mapping[str, float] = {
    "gap": 0.1,
    "data_wait": 0.4,
    "h2d": 0.5,
    "forward": 20.0,
    "backward": 36.0,
    "communication": 0.0,
    "optimizer": 6.0,
    "tail": 1.0,
}


@dataclass(frozen=True)
class RunPlan:
    """What to build. `phases_ms` is one step; every step is that, times 1 + a small deterministic wobble."""

    steps: int = 40
    phases_ms: Mapping[str, float] = field(default_factory=lambda: HEALTHY_STEP_MS)
    workers: int = 2
    prefetch_factor: int = 2
    pin_memory: bool = False
    queue_depths: Sequence[int] = (3, 4, 4, 3)
    read_ms: float = 10.0
    transform_ms: float = 20.0
    collate_ms: float = 3.0
    ranks: int = 1
    state: str = "complete"
    operators: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)


def build_run(path: Path, plan: RunPlan | None = None) -> Path:
    """Write a run of that plan below path (`path/profiler/…`) and return path."""
    plan = plan or RunPlan()
    manifest = RunManifest(
        id=path.name,
        name=path.name,
        created_unix_ns=EPOCH_UNIX_NS,
        epoch_unix_ns=EPOCH_UNIX_NS,
        source="collector",
        world_size=plan.ranks,
        host=socket.gethostname(),
        stepscope="0.1.0",
        python="3.11.7",
        torch="2.13.0",
        script="train.py",
    )
    for rank in range(plan.ranks):
        _build_rank(path, rank, plan)
    layout.run_file(path).write_text(encode_manifest(manifest), encoding="utf-8")
    return path


_PACKED: dict[str, dict[str, bytes]] = {}
"""The files of the tables of plans that were built before: most tests build one of a few."""


def _pack_tables(plan: RunPlan, steps: list[dict[str, Any]]) -> dict[str, bytes]:
    key = repr(replace(plan, ranks=1, state="complete", facts={}))
    if key not in _PACKED:
        tables: dict[str, list[dict[str, Any]]] = {
            "steps": steps,
            "phases": build_phases(steps),
            "fetches": build_fetches(steps),
            "queues": build_queues(steps, plan) if plan.workers else [],
            "stages": build_stages(steps, plan),
        }
        if plan.operators:
            tables |= {"operators": build_operators(steps), **build_timeline(steps)}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "table.parquet"
            packed = {}
            for name, rows in tables.items():
                parts.write_table(parts.build_table_from_rows(name, rows), file)
                packed[name] = file.read_bytes()
        _PACKED[key] = packed
    return _PACKED[key]


def _build_rank(path: Path, rank: int, plan: RunPlan) -> None:
    folder = layout.rank_path(path, rank)
    folder.mkdir(parents=True, exist_ok=True)
    steps = build_steps(plan)
    end_ns = steps[-1]["start_ns"] + steps[-1]["duration_ns"] if steps else 0
    for name, content in _pack_tables(plan, steps).items():
        file = layout.table_file(folder, name)
        file.unlink(missing_ok=True)
        file.write_bytes(content)
    rank_manifest = RankManifest(
        rank=rank,
        host=socket.gethostname(),
        pid=os.getpid() if plan.state == "recording" else 2**22 - 1,
        state=plan.state,  # type: ignore[arg-type]
        started_unix_ns=EPOCH_UNIX_NS,
        heartbeat_unix_ns=time.time_ns(),
        ended_unix_ns=EPOCH_UNIX_NS + end_ns,
        loaders=(
            Loader(
                0,
                "DigitFiles",
                "map",
                batch_size=32,
                num_workers=plan.workers,
                prefetch_factor=plan.prefetch_factor if plan.workers else None,
                pin_memory=plan.pin_memory,
                start_method="fork" if plan.workers else None,
                length_batches=plan.steps,
            ),
        ),
        signals=(Signal("phases", "on"), Signal("data_pipeline", "on"), Signal("window", "on")),
        overhead=Overhead(21_000.0, 0.0003, "timed 1 call in 64 of the installed hooks"),
        windows=(Window(10, 12, steps[9]["start_ns"], steps[11]["start_ns"], 50 * MS),) if len(steps) > 12 else (),
        forward_start="SmallCnn",
        backward_end="autograd engine",
        point_source="automatic",
        cpu_count=4,
        usable_cores=4.0,
        torch_threads=2,
        facts=dict(plan.facts),
    )
    layout.rank_file(path, rank).write_text(encode_manifest(rank_manifest), encoding="utf-8")


def build_steps(plan: RunPlan) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    start = 1_000 * MS
    for number in range(1, plan.steps + 1):
        wobble = 1.0 + 0.01 * ((number * 7) % 5 - 2)
        phases = {f"{name}_ns": int(plan.phases_ms.get(name, 0.0) * MS * wobble) for name in PHASE_NAMES}
        duration = sum(phases.values())
        rows.append(
            {
                "index": number - 1,
                "step": number,
                "kind": "train",
                "start_ns": start,
                "duration_ns": duration,
                **phases,
                "epoch": 1,
                "loader": 0,
                "batch": number - 1,
                "fetches": 1,
                "forwards": 1,
                "backwards": 1,
                "optimizer_steps": 1,
                "skipped_updates": 0,
                "samples": 32,
                "loader_start_ns": 0,
                "gc_ns": 0,
                "detailed": 10 <= number <= 12,
                "markers": False,
            }
        )
        start += duration
    return rows


def build_phases(steps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for step in steps:
        at = step["start_ns"]
        for name in PHASE_NAMES:
            duration = step[f"{name}_ns"]
            if duration:
                rows.append(
                    {
                        "step": step["step"],
                        "index": step["index"],
                        "phase": name,
                        "start_ns": at,
                        "duration_ns": duration,
                    }
                )
            at += duration
    return rows


def build_fetches(steps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "step": step["step"],
            "index": step["index"],
            "loader": 0,
            "epoch": 1,
            "batch": step["batch"],
            "start_ns": step["start_ns"] + step["gap_ns"],
            "duration_ns": step["data_wait_ns"],
            "samples": 32,
        }
        for step in steps
    ]


def build_queues(steps: Sequence[Mapping[str, Any]], plan: RunPlan) -> list[dict[str, Any]]:
    capacity = plan.workers * plan.prefetch_factor
    names = ("worker_queue", "pin_queue") if plan.pin_memory else ("worker_queue",)
    return [
        {
            "step": step["step"],
            "start_ns": step["start_ns"],
            "loader": 0,
            "queue": name,
            "depth": min(plan.queue_depths[step["index"] % len(plan.queue_depths)], capacity),
            "capacity": capacity,
            "next_ready": plan.queue_depths[step["index"] % len(plan.queue_depths)] > 0,
            "out_of_order": 0,
            "outstanding": capacity,
        }
        for step in steps
        for name in names
    ]


RECEIVE_NS = MS
"""What taking a batch over from its worker costs."""


def build_stages(steps: Sequence[Mapping[str, Any]], plan: RunPlan) -> list[dict[str, Any]]:
    """Rows of each worker, one batch after the other; a worker that has time left waits for an index."""
    work_ms = {"read": plan.read_ms, "transform": plan.transform_ms, "collate": plan.collate_ms}
    free = dict.fromkeys(range(max(plan.workers, 1)), 900 * MS)
    rows: list[dict[str, Any]] = []
    is_late = 2 * sum(depth == 0 for depth in plan.queue_depths) > len(plan.queue_depths)
    for step in steps:
        replica = step["index"] % plan.workers if plan.workers else -1
        slot = max(replica, 0)
        # Where the queue is empty, the step has a batch a moment after it is finished.
        late = step.get("gap_ns", 0) + max(step.get("data_wait_ns", 0) - RECEIVE_NS, 0) if is_late else 0
        begin = step["start_ns"] + late - int(sum(work_ms.values()) * MS)
        common = {"replica": replica, "loader": 0, "epoch": 1, "batch": step["batch"], "items": 32}
        at = free[slot]
        if plan.workers and begin > at:
            rows.append({**common, "stage": "read", "kind": "input_wait", "start_ns": at, "duration_ns": begin - at})
            at = begin
        for stage, length_ms in work_ms.items():
            length = int(length_ms * MS)
            row = {**common, "stage": stage, "kind": "work", "start_ns": at, "duration_ns": length}
            # Reading and transforming wait for half of their time; collating never waits.
            rows.append({**row, "cpu_ns": length if stage == "collate" else length // 2, "longest_ns": length // 16})
            at += length
        free[slot] = at
    return rows


_OPERATORS = (
    ("aten::convolution_backward", "convolution", 8, 20.0, 18.0),
    ("aten::mkldnn_convolution", "convolution", 8, 11.0, 11.0),
    ("aten::mm", "matmul", 4, 4.0, 4.0),
    ("aten::addmm", "matmul", 2, 2.5, 2.5),
    ("aten::relu", "activation", 8, 2.0, 2.0),
    ("aten::max_pool2d_with_indices", "pooling", 2, 1.5, 1.5),
    ("aten::_foreach_addcdiv_", "optimizer", 1, 1.0, 1.0),
)


def build_operators(steps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "step": step["step"],
            "name": name,
            "type": kind,
            "input_shapes": "[[32,16,28,28]]",
            "count": count,
            "total_ns": int(total_ms * MS),
            "self_ns": int(self_ms * MS),
            "device_total_ns": 0,
            "device_self_ns": 0,
        }
        for step in steps
        if step["detailed"]
        for name, kind, count, total_ms, self_ms in _OPERATORS
    ]


def build_timeline(steps: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """One track of steps and one of the training thread, for the detailed steps."""
    tracks = [
        {"track": 0, "kind": "step", "name": "Steps", "process": "python 1", "order": 0, "unit": ""},
        {"track": 1, "kind": "thread", "name": "thread 1", "process": "python 1", "order": 1, "unit": ""},
    ]
    slices: list[dict[str, Any]] = []
    for step in (s for s in steps if s["detailed"]):
        common = {"step": step["step"], "depth": 0}
        slices.append(
            {
                **common,
                "id": len(slices),
                "track": 0,
                "start_ns": step["start_ns"],
                "duration_ns": step["duration_ns"],
                "name": f"Step {step['step']}",
                "category": "step",
            }
        )
        at = step["start_ns"]
        for name, _, _, total_ms, _ in _OPERATORS:
            length = int(total_ms * MS)
            row = {"id": len(slices), "track": 1, "start_ns": at, "duration_ns": length, "name": name}
            slices.append({**common, **row, "category": "operator"})
            at += length
    slices.sort(key=lambda row: row["start_ns"])
    return {"tracks": tracks, "slices": slices, "counters": []}


def slow_loader_plan(stage: str) -> RunPlan:
    """A run whose named stage makes each batch take longer than the workers have time for."""
    slow = {"read": {"read_ms": 300.0}, "transform": {"transform_ms": 300.0}, "collate": {"collate_ms": 300.0}}[stage]
    base = RunPlan(phases_ms={**HEALTHY_STEP_MS, "data_wait": 96.0}, queue_depths=(0, 0, 0, 1))
    return replace(base, **slow)  # type: ignore[arg-type]
