"""What two runs of one training have in common, however long it took."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from collector import Profiler, Run

FAST: dict[str, Any] = {"window": None, "stacks": False, "resources": False, "triggers": False}
_COUNTED = ("kind", "step", "epoch", "batch", "fetches", "forwards", "backwards", "optimizer_steps", "samples")
_PHASES = ("data_wait", "forward", "backward", "optimizer")


def record_around(path: Path, train: Callable[[], object]) -> Run:
    """Record a training by a plain Profiler around it."""
    with Profiler(path, **FAST):
        train()
    return Run(path)


def list_rows(run: Run) -> list[tuple[Any, ...]]:
    """Return the counts of each training step and evaluation batch, and which phases took time."""
    rows = [row for row in run.table("steps").to_pylist() if row["kind"] in ("train", "eval")]
    return [(*(row[name] for name in _COUNTED), *(row[f"{name}_ns"] > 0 for name in _PHASES)) for row in rows]


def count_kinds(run: Run) -> dict[str, int]:
    kinds = [row[0] for row in list_rows(run)]
    return {kind: kinds.count(kind) for kind in ("train", "eval") if kind in kinds}


def list_saves(run: Run) -> list[str]:
    """Return the names of the ranges: only the saving of checkpoints is one here."""
    is_there = run.rank().status("ranges").state == "there"
    return [row["name"] for row in run.table("ranges").to_pylist()] if is_there else []
