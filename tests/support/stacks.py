"""Stacks of a training that was never run: put beside a run built in code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collector.format import parts
from collector.format.schema import layout

MAIN = ("<module> (/home/me/train.py:90)", "main (/home/me/train.py:60)")
LIBRARY = "/venv/lib/python3.11/site-packages"
FETCH = f"_MapDatasetFetcher.fetch ({LIBRARY}/torch/utils/data/_utils/fetch.py:52)"


def own(name: str, line: int, file: str = "train.py") -> str:
    """Return a frame of the user's code."""
    return f"{name} (/home/me/{file}:{line})"


def library(name: str, file: str, line: int = 1) -> str:
    """Return a frame of an installed package."""
    return f"{name} ({LIBRARY}/{file}:{line})"


def in_phase(phase: str, samples: int, *frames: str, kind: str = "train") -> dict[str, Any]:
    """Return a row: the training thread, in its loop, in a phase, in these functions."""
    return _row(samples, [*MAIN, *frames], kind=kind, phase=phase)


def in_stage(stage: str, samples: int, *frames: str, replica: int = 0) -> dict[str, Any]:
    """Return a row: a worker, or the training thread (-1), in a stage."""
    place = {"kind": "train", "phase": "data_wait"} if replica < 0 else {"loader": 0}
    return _row(samples, [*MAIN, FETCH, *frames], replica=replica, stage=stage, entry=len(MAIN) + 1, **place)


def in_thread(phase: str, samples: int, *frames: str, stage: str = "threads") -> dict[str, Any]:
    """Return a row: another thread of the training process, while the training thread was in a phase."""
    begin, replica = "Thread.run (/usr/lib/python3.11/threading.py:982)", -2 if stage == "threads" else -3
    return {**_row(samples, [begin, *frames], kind="train", phase=phase, stage=stage), "replica": replica, "entry": 1}


def write_stacks(run: Path, rows: Sequence[dict[str, Any]], start_ns: int = 10**12) -> Path:
    """Write the table; the samples are from after the warm-up unless another time is given."""
    folder = layout.rank_path(run, 0)
    entries = [{"start_ns": start_ns, **row} for row in rows]
    parts.write_table(parts.build_table_from_rows("stacks", entries), layout.table_file(folder, "stacks"))
    return run


def _row(samples: int, frames: Sequence[str], **values: Any) -> dict[str, Any]:
    return {"replica": -1, "duration_ns": 0, "samples": samples, "entry": 0, "stack": "\n".join(frames), **values}
