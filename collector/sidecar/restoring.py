"""Make the `steps` table again from the stretches in `phases`, which are kept for the first steps of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from collector.format import parts
from collector.format.phases import PHASE_NAMES
from collector.format.schema.errors import RunError
from collector.format.schema.manifest import Window


def rebuild_steps(rank_folder: Path, windows: Sequence[Window]) -> pa.Table | None:
    """Return the rows of `steps` whose stretches are there, without samples; None if there are none.

    A row with an update is a training step; one of a later step number than the row before it is, too.
    """
    try:
        stretches = parts.read_table(rank_folder, "phases").to_pandas()
    except RunError:
        return None
    if not len(stretches):
        return None
    fetches = _read_fetches(rank_folder)
    rows: list[dict[str, Any]] = []
    last = 0
    for key, group in stretches.groupby("index", sort=True):
        index, step = int(str(key)), int(group["step"].iloc[0])
        detailed = any(window.first_step <= step <= window.last_step for window in windows)
        row = _rebuild_row(group, fetches.get(index, {}), is_train=step > last)
        rows.append({"index": index, "step": step, "detailed": detailed, **row})
        last = max(last, step)
    return parts.build_table_from_rows("steps", rows)


def _rebuild_row(group: Any, fetch: dict[str, int], *, is_train: bool) -> dict[str, Any]:
    """Return what the stretches of a row tell of it, and its first fetch."""
    sums = group.groupby("phase", observed=True)["duration_ns"].sum()
    return {
        "kind": "train" if is_train else _name_kind(sums, int(group["step"].iloc[0])),
        "start_ns": int(group["start_ns"].min()),
        "duration_ns": int(group["duration_ns"].sum()),
        **{f"{name}_ns": int(sums.get(name, 0)) for name in PHASE_NAMES},
        **fetch,
        "fetches": int(bool(fetch)),
        "forwards": int(sums.get("forward", 0) > 0),
        "backwards": int(sums.get("backward", 0) > 0),
        "optimizer_steps": int(is_train),
        "skipped_updates": 0,
        "loader_start_ns": 0,
        "gc_ns": 0,
        "markers": False,
    }


def _name_kind(sums: Any, step: int) -> str:
    if sums.get("forward", 0) > 0:
        return "eval"
    return "rest" if step else "startup"


def _read_fetches(rank_folder: Path) -> dict[int, dict[str, int]]:
    """Return the first fetch of each row: its loader, epoch, batch and samples."""
    try:
        fetches = parts.read_table(rank_folder, "fetches", ("index", "loader", "epoch", "batch", "samples")).to_pandas()
    except RunError:
        return {}
    found: dict[int, dict[str, int]] = {}
    for row in fetches.dropna().astype("int64").to_dict("records"):
        found.setdefault(row.pop("index"), {str(name): int(value) for name, value in row.items()})
    return found
