"""Runs with one thing changed, written as a whole run of the format."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collector.format.schema import layout
from collector.format.schema.manifest import Device, encode_manifest
from collector.notebook.run import Run, open_run
from tests.support.row_edits import Row, lay_end_to_end, write_rows
from tests.support.runs import HEALTHY_STEP_MS, RunPlan, build_run, build_stages, build_steps, slow_loader_plan

A100 = Device(0, "NVIDIA A100", memory_bytes=80 << 30, multiprocessors=108)


@dataclass(frozen=True)
class Plant:
    """A run with changes: `edit` changes the rows of steps, `edit_stages` those of stages, `loader` and `manifest` are
    fields to replace, `tables` further tables of rank 0."""

    plan: RunPlan = field(default_factory=lambda: RunPlan(steps=100))
    edit: Callable[[list[Row]], None] | None = None
    edit_stages: Callable[[list[Row]], None] | None = None
    loader: Mapping[str, Any] = field(default_factory=dict)
    manifest: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, list[Row]] = field(default_factory=dict)


def build_case_run(path: Path, plant: Plant) -> Run:
    """Write the run of a plant and open it."""
    build_run(path, plant.plan)
    for rank in range(plant.plan.ranks):
        _rewrite(path, rank, plant)
    return open_run(path)


def _rewrite(path: Path, rank: int, plant: Plant) -> None:
    folder = layout.rank_path(path, rank)
    steps = build_steps(plant.plan)
    if plant.edit is not None:
        plant.edit(steps)
        lay_end_to_end(steps)
        write_rows(folder, "steps", steps)
    if plant.edit_stages is not None:
        stages = build_stages(steps, plant.plan)
        plant.edit_stages(stages)
        write_rows(folder, "stages", stages)
    for name, rows in plant.tables.items():
        write_rows(folder, name, rows)
    manifest = open_run(path).rank(rank).manifest
    loaders = tuple(dataclasses.replace(loader, **plant.loader) for loader in manifest.loaders)
    changed = dataclasses.replace(manifest, **{"loaders": loaders, **plant.manifest})
    layout.rank_file(path, rank).write_text(encode_manifest(changed), encoding="utf-8")


def step_of(**phases_ms: float) -> Mapping[str, float]:
    """Return the healthy step with some phases changed."""
    return {**HEALTHY_STEP_MS, **phases_ms}


def plan_of(workers: int = 2, depths: tuple[int, ...] = (3, 4, 4, 3), **phases_ms: float) -> RunPlan:
    return RunPlan(steps=100, workers=workers, queue_depths=depths, phases_ms=step_of(**phases_ms))


def slow(stage: str) -> RunPlan:
    return dataclasses.replace(slow_loader_plan(stage), steps=100)
