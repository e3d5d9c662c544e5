"""Rows of the tables that tests write by hand, each complete with what a test does not care about."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collector.format import parts
from collector.format.run import open_run
from collector.format.schema import layout
from collector.format.schema.manifest import Window
from tests.support.live import edit_rank


def write_rows(run: Path, table: str, rows: Sequence[dict[str, Any]], rank: int = 0) -> None:
    """Write a table of one rank of a run in place of what it had."""
    path = layout.table_file(layout.rank_path(run, rank), table)
    parts.write_table(parts.build_table_from_rows(table, rows), path)


def remove_tables(run: Path, *tables: str) -> None:
    for table in tables:
        layout.table_file(layout.rank_path(run, 0), table).unlink(missing_ok=True)


def make_inference(run: Path) -> Path:
    """Turn the steps of all ranks into batches of a run that only infers, which no training step came before."""
    opened = open_run(run)
    changes: dict[str, dict[str, Any]] = {"steps": {"kind": "eval", "step": 0, "detailed": False}}
    changes |= {name: {"step": 0} for name in ("queues", "phases", "fetches")}
    for rank in opened.ranks:
        for table, change in changes.items():
            write_rows(run, table, [{**row, **change} for row in opened.table(table, rank).to_pylist()], rank)
    edit_rank(run, windows=())
    return run


def take_window(run: Path, first: int, last: int) -> None:
    """Note a detailed window that was asked for and has just been taken."""
    start_ns = time.time_ns() - open_run(run).manifest.epoch_unix_ns
    window = Window(first, last, start_ns, start_ns + 1_000_000, trigger="control")
    edit_rank(run, windows=(*open_run(run).rank().manifest.windows, window))


def operator(name: str, **columns: Any) -> dict[str, Any]:
    times = {"total_ns": 10, "self_ns": 10, "device_total_ns": 0, "device_self_ns": 0}
    return {"step": 10, "name": name, "type": "other", "count": 2, **times, **columns}


def kernel(name: str, **columns: Any) -> dict[str, Any]:
    where = {"step": 10, "device": 0, "stream": 7, "tensor_core": False, "collective": False}
    return {**where, "name": name, "count": 1, "total_ns": 100, "min_ns": 100, "max_ns": 100, **columns}


def stage(name: str, **columns: Any) -> dict[str, Any]:
    place = {"replica": 0, "kind": "work", "loader": 0, "epoch": 1, "batch": 0, "start_ns": 0, "duration_ns": 10}
    return {"stage": name, "items": 4, **place, **columns}


def sample(step: int, depth: int, **columns: Any) -> dict[str, Any]:
    row = {"step": step, "start_ns": step * 10, "loader": 0, "queue": "worker_queue", "depth": depth, "capacity": 4}
    return row | columns
