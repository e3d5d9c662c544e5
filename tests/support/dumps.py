"""Dumps of the Flight Recorder, as the values that they hold."""

from __future__ import annotations

from typing import Any


def make_entry(sequence: int, state: str = "completed", **changed: Any) -> dict[str, Any]:
    entry = {
        "frames": [
            {"name": "all_reduce", "filename": "/lib/torch/distributed/distributed_c10d.py", "line": 10},
            {"name": "step", "filename": "/home/me/train.py", "line": 88},
        ],
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1_780_000_000_000_000_000 + sequence * 1_000_000,
        "input_sizes": [[1024, 1600]],
        "input_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None,
        "retired": state == "completed",
        "is_p2p": False,
    }
    return {**entry, **changed}


def make_dump(entries: list[dict[str, Any]], ranks: str = "[0, 1, 2, 3]") -> dict[str, Any]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries}
